"""A web crawler. Its workers share a Bloom filter of seen URLs in Redis, so that only one worker fetches a page.

python crawler.py http://localhost:8000/ --redis redis://localhost:6379/0 --workers 8

It needs the `redis` extra and a Redis server. Start it on as many machines as you like, because the filter and the
queue of URLs are in Redis. Two kinds of pages are never fetched: false positives of the filter, one in a million, and a
page that a worker was fetching when it died.
"""

import argparse
import asyncio
import urllib.request
from html.parser import HTMLParser
from urllib.parse import urldefrag, urljoin, urlsplit

from redis.asyncio import Redis

from spvfilter.bloom.redis import RedisScalableBloomFilter, connect

SEEN, QUEUE = "crawl:seen", "crawl:queue"
MAX_PAGE = 1 << 20  # bytes
IDLE_S = 1  # whole seconds; a worker that waits longer for a URL ends


class Links(HTMLParser):
    """Collects the links of an HTML page as absolute URLs."""

    def __init__(self, page: str, base: str) -> None:
        super().__init__()
        self.urls: set[str] = set()
        self._base = base
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if tag == "a" and name == "href" and value:
                self.urls.add(urldefrag(urljoin(self._base, value)).url)


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        page: bytes = answer.read(MAX_PAGE)
    return page.decode("utf-8", "replace")


async def enqueue(client: Redis, seen: RedisScalableBloomFilter, urls: set[str]) -> None:
    """Queue the URLs that no worker has seen. If several workers find a URL at the same time, only one queues it."""
    found = sorted(urls)
    fresh = [url for url, is_new in zip(found, await seen.add_many(found), strict=True) if is_new]
    if fresh:
        await client.rpush(QUEUE, *fresh)


async def work(client: Redis, seen: RedisScalableBloomFilter, host: str) -> int:
    fetched = 0
    while (item := await client.blpop([QUEUE], timeout=IDLE_S)) is not None:
        url = item[1].decode() if isinstance(item[1], bytes) else item[1]
        try:
            page = await asyncio.to_thread(fetch, url)
        except (OSError, ValueError) as error:
            print(f"{url}: {error}")
            continue
        fetched += 1
        print(url, flush=True)
        await enqueue(client, seen, {link for link in Links(page, url).urls if urlsplit(link).netloc == host})
    return fetched


async def main() -> None:
    parser = argparse.ArgumentParser(description="Fetch every page of a site once.")
    parser.add_argument("start", metavar="URL")
    parser.add_argument("--redis", default="redis://localhost:6379/0")
    parser.add_argument("--workers", type=int, default=4)
    args = parser.parse_args()

    async with connect(args.redis) as client:
        seen = await RedisScalableBloomFilter.create(client, SEEN, 10_000, 1e-6, encode="utf-8", exist_ok=True)
        await enqueue(client, seen, {args.start})
        counts = await asyncio.gather(*(work(client, seen, urlsplit(args.start).netloc) for _ in range(args.workers)))
        print(sum(counts), "pages")


if __name__ == "__main__":
    asyncio.run(main())
