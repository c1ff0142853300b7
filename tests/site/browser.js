// The site in a real browser: node browser.js FOLDER [PICTURES]. Checks that every page fits a narrow window and
// needs no other host, and tests the calculator. Ends with an error if a check fails.
"use strict";

const assert = require("node:assert");
const fs = require("node:fs");
const http = require("node:http");
const path = require("node:path");
const { chromium } = require("playwright-core");
const { source: axe } = require("axe-core");

const [folder, pictures] = process.argv.slice(2);
const KINDS = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".woff2": "font/woff2" };
const executable = process.env.CHROMIUM || ["/usr/bin/chromium", "/usr/bin/chromium-browser"].find((each) => fs.existsSync(each));

function serve() {
  const server = http.createServer((request, answer) => {
    const file = path.join(folder, path.normalize(decodeURIComponent(new URL(request.url, "http://localhost").pathname)));
    fs.readFile(file, (error, data) => {
      answer.writeHead(error ? 404 : 200, { "content-type": KINDS[path.extname(file)] || "application/octet-stream" });
      answer.end(error ? "" : data);
    });
  });
  return new Promise((done) => server.listen(0, "127.0.0.1", () => done(server)));
}

async function opened(browser, address, options) {
  const page = await browser.newPage(options);
  const problems = [];
  page.on("pageerror", (error) => problems.push(String(error)));
  page.on("response", (answer) => answer.ok() || answer.url().endsWith("/favicon.ico") || problems.push(`${answer.status()} for ${answer.url()}`));
  page.on("request", (request) => request.url().startsWith(new URL(address).origin) || problems.push(`asks another host: ${request.url()}`));
  await page.goto(address);
  return [page, problems];
}

const NARROW = 400; // pixels of a small telephone

const text = (page, id) => page.locator(`#calc-${id}`).innerText();

async function computes(browser, address) {
  const [page, problems] = await opened(browser, `${address}#n=10000000&p=0.001&k=3`, {});
  assert.match(await text(page, "said"), /^10,000,000 keys, k = 3, 284,736,648 bits/);
  await page.fill("#calc-k", "");
  assert.match(await text(page, "said"), /k = 10, 143,776,394 bits/);
  assert.equal(new URL(page.url()).hash, "#n=10000000&p=0.001");
  await page.fill("#calc-p", "many");
  assert.equal(await text(page, "said"), "p: not a number; write 1000000, 1e6, 0.01 or 1%");
  assert.equal(await page.getAttribute("#calc-p", "aria-invalid"), "true");
  assert.equal(await page.isHidden("#calc-results"), true);
  await page.fill("#calc-n", "-5");
  await page.fill("#calc-p", "1%");
  assert.equal(await text(page, "said"), "n is a whole number from 1 to 9007199254740991");
  await page.fill("#calc-n", "1");
  await page.fill("#calc-m", "1");
  assert.equal(await text(page, "said"), "1 key, k = 1, 1 bit (1 byte): n and m decide the rate; p is only compared with it");
  assert.match(await text(page, "caption"), /0.63212 when full; dotted: the rate asked for, 0.01/);
  await page.fill("#calc-m", "");
  await page.fill("#calc-n", "10");
  assert.match(await text(page, "bip37"), /11 bytes and 5 functions/);
  await page.fill("#calc-n", "144001");
  assert.match(await text(page, "bip37"), /0 functions.*matches everything. 36,000 bytes hold 144,000 elements at most/);
  await page.fill("#calc-n", "5");
  await page.fill("#calc-p", "0.215");
  assert.match(await text(page, "bip37"), /0 functions.*Take a lower rate/);
  assert.deepEqual(problems, []);
  const [again] = await opened(browser, page.url(), {});
  assert.equal(await text(again, "said"), await text(page, "said"));
  await again.evaluate(() => { location.hash = "#n=1000&m=9585"; });
  await again.waitForFunction(() => document.getElementById("calc-said").textContent.startsWith("1,000 keys, k = 7"));
  await Promise.all([page.close(), again.close()]);
}

async function typed(browser, address) {
  const [page] = await opened(browser, address, {});
  await page.focus("#calc-n");
  await page.keyboard.press("Control+A");
  await page.keyboard.type("500");
  for (const name of ["p", "k", "m"]) {
    await page.keyboard.press("Tab");
    assert.equal(await page.evaluate(() => document.activeElement.id), `calc-${name}`);
  }
  await page.keyboard.type("8000");
  await page.keyboard.press("Enter"); // must not leave the page
  assert.match(await text(page, "said"), /^500 keys, k = 11, 8,000 bits/);
  const outline = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
  assert.notEqual(outline, "none");
  await page.close();
}

async function looks(browser, address) {
  for (const [name, width, colorScheme] of [["wide", 1280, "light"], ["dark", 1280, "dark"], ["narrow", 360, "light"], ["narrow-dark", 360, "dark"]]) {
    const [page, problems] = await opened(browser, address, { viewport: { width, height: 900 }, colorScheme });
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${name}: the page is wider than the window`);
    assert.ok((await page.locator("#calc-plot polyline").boundingBox()).width > 100, `${name}: no line is drawn`);
    await page.addScriptTag({ content: axe });
    const { violations } = await page.evaluate(() => axe.run(document.querySelector("article")));
    assert.deepEqual(violations.map((each) => `${each.id}: ${each.nodes.map((node) => node.target.join(" ")).join(", ")}`), [], name);
    assert.deepEqual(problems, [], name);
    if (pictures) await page.screenshot({ path: path.join(pictures, `calculator-${name}.png`), fullPage: true });
    await page.close();
  }
}

/* The paths of all pages below a folder. */
function pagesBelow(below) {
  return fs.readdirSync(path.join(folder, below), { withFileTypes: true }).flatMap((each) => {
    const name = path.posix.join(below, each.name);
    return each.isDirectory() ? pagesBelow(name) : name.endsWith(".html") ? [name] : [];
  });
}

/* Up to five elements that are too wide for the window and cannot be scrolled by themselves. It runs in the browser. */
function tooWide() {
  const scrolls = (element) => ["auto", "scroll"].includes(getComputedStyle(element).overflowX);
  const edge = document.documentElement.clientWidth + 1; // edges of boxes have fractions
  const found = document.documentElement.scrollWidth > edge ? ["the whole page"] : [];
  for (const element of document.querySelectorAll("article *")) {
    if (element.getBoundingClientRect().right <= edge || !element.getClientRects().length) continue;
    let above = element.parentElement;
    while (above.tagName !== "ARTICLE" && !scrolls(above)) above = above.parentElement;
    if (above.tagName === "ARTICLE") found.push(`${element.tagName.toLowerCase()}.${element.className}: ${element.textContent.slice(0, 60)}`);
  }
  return found.slice(0, 5);
}

async function fits(browser, address) {
  const pages = pagesBelow(""), wide = [];
  const [page, problems] = await opened(browser, address, { viewport: { width: NARROW, height: 900 } });
  for (const each of pages) {
    await page.goto(new URL(each, address).href);
    for (const found of await page.evaluate(tooWide)) wide.push(`${each}: ${found}`);
  }
  await page.close();
  assert.ok(pages.length > 50, `only ${pages.length} pages in ${folder}`);
  assert.deepEqual(problems, []);
  assert.ok(!wide.length, `wider than ${NARROW} pixels:\n${wide.join("\n")}`);
}

(async () => {
  assert.ok(executable, "no Chromium here: apt install chromium, or set CHROMIUM");
  const server = await serve();
  const browser = await chromium.launch({ executablePath: executable, args: ["--no-sandbox"] });
  try {
    const address = `http://127.0.0.1:${server.address().port}/calculator.html`;
    for (const check of [fits, computes, typed, looks]) await check(browser, address);
    console.log("every page fits 400 pixels; the calculator computes, is used by keyboard, and looks right, light and dark, wide and narrow; axe-core finds nothing");
  } finally {
    await browser.close();
    server.close();
  }
})().catch((error) => { console.error(String(error.stack || error)); process.exit(1); });
