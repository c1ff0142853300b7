#include "watch/lines.h"

#include "array.h"

#include <pthread.h>

enum {
    MOST_LINE = 1000,        /* bytes of a line; watch/textfile.py handles longer lines and has its own limit */
    PIECE = 1 << 16,         /* bytes that a thread decodes at once */
    MOST_PIECES = 64         /* pieces of a batch */
};

/* The size in bytes of the UTF-8 character at `at`, by the table of Unicode § 3.9 (no surrogates, no overlong
   forms). It is 0 for malformed bytes and for characters that a label must not contain: control characters, line and
   paragraph separators. */
static size_t label_character(const uint8_t *at, size_t left) {
    uint8_t first = at[0];
    if (first < 0x80)
        return first >= 0x20 && first != 0x7F;
    size_t size = first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
    if (!size || left < size)
        return 0;
    for (size_t i = 1; i < size; i++)
        if ((at[i] & 0xC0) != 0x80)
            return 0;
    bool control = first == 0xC2 && at[1] < 0xA0;
    bool separator = first == 0xE2 && at[1] == 0x80 && (at[2] == 0xA8 || at[2] == 0xA9);
    bool overlong = (first == 0xE0 && at[1] < 0xA0) || (first == 0xF0 && at[1] < 0x90);
    bool beyond = (first == 0xED && at[1] > 0x9F) || (first == 0xF4 && at[1] > 0x8F); /* surrogates; above U+10FFFF */
    return control || separator || overlong || beyond ? 0 : size;
}

static bool is_label(spv_bytes label) {
    for (size_t at = 0, step; at < label.size; at += step)
        if (!(step = label_character(label.data + at, label.size - at)))
            return false;
    return true;
}

static bool keep_label(spv_address_lines *taken, spv_bytes label, uint32_t entry) {
    spv_label *labels = spv_array_grown(taken->labels, taken->count, &taken->room, sizeof *labels);
    if (!labels)
        return false;
    taken->labels = labels;
    labels[taken->count++] = (spv_label){label, entry};
    return true;
}

/* Decoding. */

typedef struct {
    spv_script script;
    spv_bytes label;
} decoded_line;

/* Lines that one thread decodes. */
typedef struct {
    spv_bytes text;
    decoded_line *lines;
    size_t count, room;
    size_t consumed; /* bytes of the decoded lines; less than all if a line was not decoded */
    spv_status status;
    bool ready;
} piece;

static bool decode_line(const spv_address_network *network, const uint8_t *at, size_t size, decoded_line *line) {
    if (size > MOST_LINE)
        return false;
    size -= size && at[size - 1] == '\r';
    const uint8_t *comma = memchr(at, ',', size);
    line->label = (spv_bytes){at + size, 0};
    if (comma)
        line->label = (spv_bytes){comma + 1, (size_t)(at + size - comma) - 1};
    return spv_decode_address(network, at, size - line->label.size - (comma ? 1 : 0), &line->script) && is_label(line->label);
}

static void decode(const spv_address_network *network, piece *of) {
    const uint8_t *at = of->text.data, *end = at + of->text.size, *newline;
    while ((newline = memchr(at, '\n', (size_t)(end - at)))) {
        decoded_line *lines = spv_array_grown(of->lines, of->count, &of->room, sizeof *lines);
        if (!lines) {
            of->status = SPV_NOMEM;
            break;
        }
        of->lines = lines;
        if (!decode_line(network, at, (size_t)(newline - at), &lines[of->count]))
            break;
        of->count++;
        at = newline + 1;
    }
    of->consumed = (size_t)(at - of->text.data);
}

static bool is_whole(const piece *of) {
    return !of->status && of->consumed == of->text.size;
}

/* The pieces of a batch, which threads take in their order. */
typedef struct {
    const spv_address_network *network;
    piece pieces[MOST_PIECES];
    size_t count, next; /* number of pieces; the next piece that is taken */
    bool stopped;       /* no more pieces are taken */
    pthread_mutex_t mutex;
    pthread_cond_t ready;
} batch;

/* Decodes the next piece. The caller has the mutex before and afterwards. False if there is none. */
static bool decode_next(batch *of) {
    if (of->stopped || of->next == of->count)
        return false;
    piece *taken = &of->pieces[of->next++];
    pthread_mutex_unlock(&of->mutex);
    decode(of->network, taken);
    pthread_mutex_lock(&of->mutex);
    taken->ready = true;
    of->stopped = of->stopped || !is_whole(taken);
    pthread_cond_broadcast(&of->ready);
    return true;
}

static void *work(void *context) {
    batch *of = context;
    pthread_mutex_lock(&of->mutex);
    while (decode_next(of))
        ;
    pthread_mutex_unlock(&of->mutex);
    return NULL;
}

/* Waits until a piece is decoded, and decodes pieces meanwhile. False if no thread will decode it. */
static bool await_piece(batch *of, size_t number) {
    pthread_mutex_lock(&of->mutex);
    while (!of->pieces[number].ready && (decode_next(of) || number < of->next))
        if (!of->pieces[number].ready && (of->stopped || of->next == of->count))
            pthread_cond_wait(&of->ready, &of->mutex);
    const bool ready = of->pieces[number].ready;
    pthread_mutex_unlock(&of->mutex);
    return ready;
}

static spv_status add_lines(spv_table *table, const piece *of, spv_address_lines *taken) {
    for (size_t i = 0; i < of->count; i++) {
        const decoded_line *line = &of->lines[i];
        uint32_t entry;
        spv_status status = spv_table_add(table, SPV_SCRIPT, (spv_bytes){line->script.bytes, line->script.size}, &entry);
        if (!status && line->label.size && !keep_label(taken, line->label, entry))
            status = SPV_NOMEM;
        if (status)
            return status;
        taken->lines++;
    }
    taken->consumed += of->consumed;
    return of->status;
}

/* Cuts the text into pieces that end with a line, except the last one. Returns the bytes of all pieces. */
static size_t cut(batch *of, spv_bytes text, size_t most) {
    size_t at = 0;
    for (of->count = 0; of->count < most && at < text.size; of->count++) {
        const size_t left = text.size - at;
        const uint8_t *end = left > PIECE ? memchr(text.data + at + PIECE, '\n', left - PIECE) : NULL;
        const size_t size = end ? (size_t)(end - text.data) + 1 - at : left;
        of->pieces[of->count] = (piece){.text = {text.data + at, size}};
        at += size;
    }
    return at;
}

/* Decodes and adds the pieces of a batch. False in *whole if not all lines were taken. */
static spv_status take_batch(spv_table *table, batch *of, unsigned jobs, spv_address_lines *taken, bool *whole) {
    pthread_t threads[SPV_MOST_JOBS];
    unsigned started = 0;
    spv_status status = SPV_OK;
    *whole = true;
    of->next = 0;
    of->stopped = false;
    while (started + 1 < jobs && started + 1 < of->count && started < SPV_MOST_JOBS && !pthread_create(&threads[started], NULL, work, of))
        started++;
    for (size_t number = 0; number < of->count && *whole && !status; number++) {
        *whole = await_piece(of, number);
        if (*whole)
            status = add_lines(table, &of->pieces[number], taken);
        *whole = *whole && is_whole(&of->pieces[number]);
    }
    pthread_mutex_lock(&of->mutex);
    of->stopped = true;
    pthread_mutex_unlock(&of->mutex);
    for (; started; started--)
        pthread_join(threads[started - 1], NULL);
    for (size_t number = 0; number < of->count; number++)
        free(of->pieces[number].lines);
    return status;
}

/* The first batch has one piece, and each further batch has twice as many: if a line is not decoded, little work was
   in vain. */
spv_status spv_add_address_lines(spv_table *table, const spv_address_network *network, spv_bytes chunk, unsigned jobs, spv_address_lines *taken) {
    *taken = (spv_address_lines){0};
    batch *of = calloc(1, sizeof *of);
    if (!of)
        return SPV_NOMEM;
    of->network = network;
    spv_status status = pthread_mutex_init(&of->mutex, NULL) ? SPV_NOMEM : SPV_OK;
    if (!status && pthread_cond_init(&of->ready, NULL)) {
        pthread_mutex_destroy(&of->mutex);
        status = SPV_NOMEM;
    }
    if (status) {
        free(of);
        return status;
    }
    bool whole = true;
    for (size_t most = 1; whole && !status && chunk.size; most = most < MOST_PIECES ? 2 * most : most) {
        const size_t size = cut(of, chunk, most);
        chunk = (spv_bytes){chunk.data + size, chunk.size - size};
        status = take_batch(table, of, jobs, taken, &whole);
    }
    pthread_cond_destroy(&of->ready);
    pthread_mutex_destroy(&of->mutex);
    free(of);
    return status;
}

void spv_address_lines_free(spv_address_lines *taken) {
    free(taken->labels);
}
