#ifndef TESSERA_TESSERA_H
#define TESSERA_TESSERA_H
/*
 * tessera's C interface: load a GGUF model, decode batches of tokens, read logits, sample, and turn text into tokens
 * and back. C99 and C++; nothing but standard headers. docs/c-api.md is the short guide, tessera.hpp the C++ wrapper.
 *
 * Errors. Every function that can fail returns a tsr_status; TSR_OK is 0. After a failure tsr_last_error() has the
 * text, and outputs are NULL or 0 where their pointers were valid. A NULL handle or any other bad argument is
 *   TSR_INVALID_ARGUMENT, never a crash. No exception leaves this interface.
 * Ownership. Handles belong to the caller, who frees each once with its own function; these accept NULL. A model lives
 *   until its handle *and* everything made from it are freed, in any order. Blocks that a function hands out as `T **`
 *   (texts, token ids, lists) are freed with tsr_free(). All else that is pointed to belongs to the library; each place
 *   says how long it is valid.
 * Threads. Models and chat templates may be used by any number of threads at once. A context, sampler or stream serves
 *   one call at a time: a call that meets another in the same context fails with TSR_BUSY, samplers and streams are the
 *   caller's to guard. Nobody may use a handle while or after it is freed.
 * Structs grow at their ends. The first member of each is `size`: what the caller was compiled with. Structs that the
 *   caller fills are begun with their `_init` function; members that the library does not know must be 0
 *   (TSR_UNSUPPORTED otherwise). Structs that the library fills are given with sizeof; afterwards `size` is the number
 *   of bytes that it knows, and the rest is 0.
 * Texts are UTF-8 where models and callers keep to it; the library passes other bytes on unchanged. Texts that it hands
 *   out end in a NUL that does not count, unless a function says otherwise; they may contain NULs, so mind their sizes.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define TSR_API __attribute__((visibility("default")))
#else
#define TSR_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Errors and memory ------------------------------------------------------------------------------------------- */

/* The numbers stay; later versions may add codes. */
typedef enum tsr_status {
  TSR_OK = 0,
  TSR_INVALID_ARGUMENT = 1, /* the call makes no sense; the text names the argument or field */
  TSR_NOT_FOUND = 2,        /* a file, key or token does not exist */
  TSR_INVALID_DATA = 3,     /* a file or request is damaged or hostile */
  TSR_UNSUPPORTED = 4,      /* valid, but not something this build can do */
  TSR_DOES_NOT_FIT = 5,     /* a memory budget is too small; the text says needed and free */
  TSR_OUT_OF_MEMORY = 6,    /* the operating system or driver had no memory */
  TSR_CACHE_FULL = 7,       /* no free place in the KV cache; nothing was changed */
  TSR_BUSY = 8,             /* in use by another call */
  TSR_CANCELLED = 9,        /* a callback asked to stop */
  TSR_DEADLINE_EXCEEDED = 10,
  TSR_DEVICE_LOST = 11, /* a device failed; what lived only there is gone */
  TSR_IO = 12,          /* the operating system could not read or write */
  TSR_INTERNAL = 13     /* a bug of the library, found before it did harm */
} tsr_status;

/* "invalid_argument" and so on; "unknown" for other numbers. Static. Never fails. */
TSR_API const char* tsr_status_name(tsr_status status);

/* What went wrong in the last call that failed in this thread; "" if none has. Calls that succeed leave it. Valid until
 * the next call that fails in this thread. Never fails. */
TSR_API const char* tsr_last_error(void);

/* "0.1.0". Static. Never fails. */
TSR_API const char* tsr_version(void);

/* Frees a block that a function handed out as `T **`. NULL does nothing. */
TSR_API void tsr_free(void* block);

/* ---- Devices of this machine ------------------------------------------------------------------------------------- */

typedef struct tsr_device_info {
  size_t size;
  const char* name;         /* what tsr_model_options.devices takes: "cpu:0" */
  const char* description;  /* processor or card */
  int64_t n_threads;        /* CPU: threads it runs at once */
  uint64_t memory_bytes;    /* of the hardware */
  uint64_t available_bytes; /* of these, free now */
} tsr_device_info;

/* The devices that models can be loaded on, best first. *devices: an array of *n structs of struct_size bytes each, one
 * block with their texts; free it with tsr_free(). struct_size: sizeof(tsr_device_info). */
TSR_API tsr_status tsr_list_devices(tsr_device_info** devices, size_t struct_size, size_t* n);

/* ---- Contexts' options (models plan with them) ------------------------------------------------------------------- */

/* In place of a number of snapshots: keep none. */
#define TSR_NO_SNAPSHOTS (-1)

typedef struct tsr_context_options {
  size_t size;
  int64_t n_ctx;            /* positions one sequence may have; 0: as many as the model was trained on */
  int64_t n_batch;          /* most tokens of one decode; default 2048 */
  int64_t n_ubatch;         /* most tokens the devices take at once; default 512 */
  int32_t n_seq_max;        /* sequences; default 1 */
  const char* cache_type_k; /* of the KV cache: "f32", "f16" (NULL means that), "bf16", "q8_0", "q4_0" */
  const char* cache_type_v;
  int32_t n_snapshots;     /* of recurrent state, over all sequences, at most; 0: 32, TSR_NO_SNAPSHOTS: none */
  uint64_t snapshot_bytes; /* of host memory that all of them take, at most; 0: 2 GiB */
  int32_t embeddings;      /* not 0: tokens may want their embeddings, which takes some memory */
} tsr_context_options;

/* Writes the defaults. struct_size: sizeof *options. Errors: TSR_INVALID_ARGUMENT. */
TSR_API tsr_status tsr_context_options_init(tsr_context_options* options, size_t struct_size);

/* ---- Models ------------------------------------------------------------------------------------------------------ */

typedef struct tsr_model tsr_model;

typedef enum tsr_log_level {
  TSR_LOG_DETAIL = 0,
  TSR_LOG_INFO = 1,
  TSR_LOG_WARNING = 2 /* works, but not as the caller may think */
} tsr_log_level;

/* Called in the thread that loads, with 0 .. 1, both ends included. False stops loading with TSR_CANCELLED. As all
 * callbacks it must not throw. */
typedef bool (*tsr_progress_fn)(double fraction, void* user);
/* One message without newline, in the thread that loads. The text is valid during the call only. */
typedef void (*tsr_log_fn)(tsr_log_level level, const char* message, void* user);

/* Words mean what they mean in the program's flags (docs/flags.md). Pointers are read during the call only. */
typedef struct tsr_model_options {
  size_t size;
  const char* const* devices; /* [n_devices], in order; none: cpu:0. A name may be given several times */
  size_t n_devices;
  const uint64_t* device_memory; /* [n_device_memory] budgets in bytes: none (what is free), one for all, or one each */
  size_t n_device_memory;
  const char* split_mode;     /* "none", "layer" (NULL means that), "tensor" */
  const double* tensor_split; /* [n_tensor_split] shares of the devices, scaled by their sum; none: even */
  size_t n_tensor_split;
  int32_t n_cuts;      /* pieces of each layer; 0: as devices and shares ask. Logits have equal bits for equal cuts */
  int32_t n_threads;   /* over all devices, at most 1024; 0: what the machine runs at once */
  const char* kernels; /* "auto" (NULL means that), "fast", "scalar" */
  const char* cpu_isa; /* "auto" (NULL means that), "portable", "avx2", "avxvnni", "avx512" */
  bool vocab_only;     /* tokenizer, template and metadata only; the model cannot decode */
  const tsr_context_options* planned_context; /* loading fails where this would not fit too; NULL: weights only */
  tsr_progress_fn progress;                   /* may be NULL */
  void* progress_user;
  tsr_log_fn log; /* may be NULL; nothing is ever printed */
  void* log_user;
  tsr_log_level log_least;            /* messages below it are not made; default TSR_LOG_INFO */
  const char* const* override_tensor; /* [n_override_tensor] "REGEX=DEVICE": home of tiles with tensors so named,
                                         whatever the split; the first that finds a tensor decides */
  size_t n_override_tensor;
  int64_t n_cpu_moe;     /* layers, from the first, whose experts live on the last CPU device; 0: none */
  int64_t expert_slots;  /* experts that live elsewhere by the two above are copied, as a batch draws them, into so many
                            slots of the device that the split gave them; 0: computed where they live. At most 1024 */
  const char* cpu_mask;  /* CPUs for the threads, hexadecimal; NULL: any. With cpu_range: CPUs of either */
  const char* cpu_range; /* "LO-HI" */
  const char* numa;      /* "none" (NULL means that), "distribute", "isolate", "numactl" */
  bool cpu_strict;       /* each thread on one CPU of its own */
} tsr_model_options;

/* Writes the defaults. struct_size: sizeof *options. Errors: TSR_INVALID_ARGUMENT. */
TSR_API tsr_status tsr_model_options_init(tsr_model_options* options, size_t struct_size);

/* Opens a GGUF file (of a split one the first part), checks it, and places its weights. The file must stay unchanged
 * while the model lives. options may be NULL. Blocks until done. Errors: TSR_NOT_FOUND, TSR_IO, TSR_INVALID_DATA,
 * TSR_UNSUPPORTED (the file); TSR_INVALID_ARGUMENT (the options); TSR_DOES_NOT_FIT (per device: needed and budget);
 * TSR_CANCELLED. */
TSR_API tsr_status tsr_model_load(const char* path, const tsr_model_options* options, tsr_model** model);

/* Gives the handle back; the model itself goes with the last thing made from it. */
TSR_API void tsr_model_free(tsr_model* model);

typedef struct tsr_model_info {
  size_t size;
  const char* architecture; /* texts: valid as long as the model handle; "" where nothing is known */
  const char* name;
  const char* split_mode;   /* as it was loaded, like placement_version; tsr_model_placement() says what holds */
  const char* kernel_class; /* devices of one class give equal bits */
  const char* cpu_isa;
  const char* chat_template; /* the file's own; "": none */
  int64_t n_layer;
  int64_t n_embd;
  int64_t n_head;
  int64_t n_kv_head;
  int64_t n_vocab;     /* logits in a row; 0 when only the vocabulary was loaded */
  int64_t n_ctx_train; /* positions the model was trained on */
  int64_t n_cuts;
  int64_t n_layers_attn_cut; /* layers whose attention has two or more cuts that are not empty */
  int64_t n_layers_ffn_cut;  /* the same for the feed-forward part */
  uint64_t file_bytes;
  uint64_t placement_version;
  double load_ms;
  bool has_text; /* the vocabulary can be used; else the functions of "Text" fail and say why */
  bool can_decode;
} tsr_model_info;

/* Facts of a loaded model. struct_size: sizeof *info. */
TSR_API tsr_status tsr_model_get_info(const tsr_model* model, tsr_model_info* info, size_t struct_size);

/* Number of keys in the file's metadata, in file order. */
TSR_API tsr_status tsr_model_n_metadata(const tsr_model* model, size_t* n);
/* Key number index; valid as long as the model handle. Errors: TSR_INVALID_ARGUMENT beyond the last. */
TSR_API tsr_status tsr_model_metadata_key(const tsr_model* model, size_t index, const char** key);
/* The value of a key: a text as it is; numbers, booleans and whole arrays (a vocabulary may be megabytes) as JSON.
 * *value: *n_bytes bytes; free it with tsr_free(). n_bytes may be NULL. Errors: TSR_NOT_FOUND. */
TSR_API tsr_status tsr_model_metadata(const tsr_model* model, const char* key, char** value, size_t* n_bytes);

/* ---- Placement --------------------------------------------------------------------------------------------------- */

typedef struct tsr_device_use {
  size_t size;
  const char* name;      /* of the logical device: the second cpu:0 is "cpu:0#2" */
  int64_t n_tiles;       /* that have their home here */
  uint64_t weight_bytes; /* tiles and what every device holds */
  uint64_t kv_bytes;     /* of all contexts */
  uint64_t scratch_bytes;
  uint64_t budget_bytes;
  uint64_t rec_bytes;   /* recurrent state of all contexts */
  uint64_t spare_bytes; /* held by no one: left at hand by the last switch for the next; whatever grows gets it first */
} tsr_device_use;

/* What each of the model's devices holds now, in their order. One block; free it with tsr_free(). struct_size:
 * sizeof(tsr_device_use). *n is 0 when only the vocabulary was loaded. */
TSR_API tsr_status tsr_model_list_devices(const tsr_model* model, tsr_device_use** devices, size_t struct_size,
                                          size_t* n);

typedef struct tsr_tile {
  size_t size;
  const char* kind; /* "attn", "ffn", "head", "expert" */
  int32_t layer;    /* -1 for the head */
  int32_t cut;      /* 0 .. n_cuts - 1 */
  int32_t device;   /* its home: index into tsr_model_list_devices() */
  uint64_t offset;  /* bytes from the beginning of that device's tiles */
  uint64_t bytes;
  int32_t expert; /* which of the layer's; -1 for other kinds */
} tsr_tile;

/* Where each part of the weights lives now. One block; free it with tsr_free(). struct_size: sizeof(tsr_tile). */
TSR_API tsr_status tsr_model_list_tiles(const tsr_model* model, tsr_tile** tiles, size_t struct_size, size_t* n);

/* ---- Text -------------------------------------------------------------------------------------------------------- */
/* All of these fail with the reason (mostly TSR_UNSUPPORTED) when the file has no vocabulary that can be used. */

/* As a number of bytes: the text ends at its first NUL. */
#define TSR_NUL_TERMINATED SIZE_MAX
/* In place of a token id: there is none. */
#define TSR_NO_TOKEN (-1)

enum {
  TSR_TOKENIZE_ADD_SPECIAL = 1,  /* begin and end tokens where the model's metadata asks for them */
  TSR_TOKENIZE_PARSE_SPECIAL = 2 /* text of control tokens becomes those tokens: never for what users wrote */
};

/* Token ids of a text. flags: TSR_TOKENIZE_... added. *ids: *n ids; free it with tsr_free(). */
TSR_API tsr_status tsr_tokenize(const tsr_model* model, const char* text, size_t n_bytes, uint32_t flags, int32_t** ids,
                                size_t* n);

enum {
  TSR_DETOKENIZE_SHOW_SPECIAL = 1, /* text of control and unknown tokens is part of the result */
  TSR_DETOKENIZE_VERBATIM = 2      /* the pieces in a row: keeps a space that tokenizing added in front */
};

/* The text of ids; ids outside the vocabulary add nothing. flags: TSR_DETOKENIZE_... added. *text: *n_bytes bytes; free
 * it with tsr_free(). n_bytes may be NULL. For text that arrives token by token use a stream. */
TSR_API tsr_status tsr_detokenize(const tsr_model* model, const int32_t* ids, size_t n, uint32_t flags, char** text,
                                  size_t* n_bytes);

/* The bytes that one token stands for. *bytes: *n_bytes bytes, *not* ended by a NUL, valid as long as the model lives.
 * Errors: TSR_INVALID_ARGUMENT for an id outside the vocabulary. */
TSR_API tsr_status tsr_token_piece(const tsr_model* model, int32_t id, const char** bytes, size_t* n_bytes);

typedef enum tsr_token_type {
  TSR_TOKEN_UNDEFINED = 0,
  TSR_TOKEN_NORMAL = 1,
  TSR_TOKEN_UNKNOWN = 2,
  TSR_TOKEN_CONTROL = 3,
  TSR_TOKEN_USER_DEFINED = 4,
  TSR_TOKEN_UNUSED = 5,
  TSR_TOKEN_BYTE = 6
} tsr_token_type;

typedef struct tsr_token_info {
  size_t size;
  const char* text; /* as the vocabulary spells it; *not* ended by a NUL, valid as long as the model lives */
  size_t n_text_bytes;
  tsr_token_type type; /* corrected: text like <|im_end|> is control whatever the file says */
  bool is_end;         /* generation stops after it */
} tsr_token_info;

/* Errors: TSR_INVALID_ARGUMENT for an id outside the vocabulary. struct_size: sizeof *info. */
TSR_API tsr_status tsr_token_get_info(const tsr_model* model, int32_t id, tsr_token_info* info, size_t struct_size);

/* The token that the vocabulary spells so, the lowest among equals. Errors: TSR_NOT_FOUND; then *id is TSR_NO_TOKEN. */
TSR_API tsr_status tsr_token_find(const tsr_model* model, const char* text, size_t n_bytes, int32_t* id);

typedef struct tsr_vocab_info {
  size_t size;
  const char* model;         /* "llama", "gpt2", "gemma4"; valid as long as the model handle, as all pointers here */
  const char* pre_tokenizer; /* the family in use; "" for llama */
  int32_t n_tokens;          /* may be fewer than logits in a row */
  int32_t bos, eos, eot, eom, unk, sep, pad, nl; /* TSR_NO_TOKEN: the vocabulary has none */
  int32_t fim_prefix, fim_suffix, fim_middle;
  bool add_bos, add_eos;  /* what TSR_TOKENIZE_ADD_SPECIAL does */
  const int32_t* end_ids; /* [n_end_ids] tokens after which generation stops, ascending */
  size_t n_end_ids;
  const int32_t* suppress_ids; /* [n_suppress_ids] tokens that the file says must never be chosen */
  size_t n_suppress_ids;
} tsr_vocab_info;

/* struct_size: sizeof *info. */
TSR_API tsr_status tsr_vocab_get_info(const tsr_model* model, tsr_vocab_info* info, size_t struct_size);

/* Turns tokens into text as they arrive, never ending inside a UTF-8 character. */
typedef struct tsr_stream tsr_stream;

/* show_special: as TSR_DETOKENIZE_SHOW_SPECIAL. */
TSR_API tsr_status tsr_stream_create(const tsr_model* model, bool show_special, tsr_stream** stream);
TSR_API void tsr_stream_free(tsr_stream* stream);
/* The text that is complete once id is added, often empty. Valid until the stream's next call. n_bytes may be NULL. */
TSR_API tsr_status tsr_stream_push(tsr_stream* stream, int32_t id, const char** text, size_t* n_bytes);
/* The bytes that still wait; the stream may be used again afterwards. As tsr_stream_push(). */
TSR_API tsr_status tsr_stream_flush(tsr_stream* stream, const char** text, size_t* n_bytes);

/* ---- Chat templates ---------------------------------------------------------------------------------------------- */

typedef struct tsr_chat_template tsr_chat_template;

/* source: a Jinja template; NULL or "": the model file's own, or ChatML where it has none. Errors: TSR_INVALID_DATA
 * with line and reason when it is not valid. */
TSR_API tsr_status tsr_chat_template_create(const tsr_model* model, const char* source, tsr_chat_template** chat);
TSR_API void tsr_chat_template_free(tsr_chat_template* chat);

typedef struct tsr_message {
  const char* role;    /* "system", "user", "assistant", ... */
  const char* content; /* UTF-8; other bytes become U+FFFD */
} tsr_message;

/* The prompt for a conversation, ready for the answer (a last message of the assistant is continued): as text, or as
 * the ids to decode, in which only what the template wrote becomes special tokens. Free the result with tsr_free();
 * n_bytes may be NULL. The _json forms take a chat-completion request instead: {"messages": [...], and optionally
 * "tools", "add_generation_prompt", "enable_thinking", "chat_template_kwargs", ...}. Errors: TSR_INVALID_ARGUMENT,
 * TSR_INVALID_DATA, TSR_UNSUPPORTED: the request is malformed or the template refuses it. */
TSR_API tsr_status tsr_chat_template_render(const tsr_chat_template* chat, const tsr_message* messages,
                                            size_t n_messages, char** text, size_t* n_bytes);
TSR_API tsr_status tsr_chat_template_render_json(const tsr_chat_template* chat, const char* json, size_t n_json_bytes,
                                                 char** text, size_t* n_bytes);
TSR_API tsr_status tsr_chat_template_encode(const tsr_chat_template* chat, const tsr_message* messages,
                                            size_t n_messages, int32_t** ids, size_t* n);
TSR_API tsr_status tsr_chat_template_encode_json(const tsr_chat_template* chat, const char* json, size_t n_json_bytes,
                                                 int32_t** ids, size_t* n);

/* ---- Contexts ---------------------------------------------------------------------------------------------------- */

/* The memory of many sequences. A sequence is a list of tokens at positions 0 .. length - 1; all begin empty. */
typedef struct tsr_context tsr_context;

/* options may be NULL. Errors: TSR_INVALID_ARGUMENT (names the field), TSR_DOES_NOT_FIT (per device), TSR_UNSUPPORTED.
 */
TSR_API tsr_status tsr_context_create(const tsr_model* model, const tsr_context_options* options,
                                      tsr_context** context);
TSR_API void tsr_context_free(tsr_context* context);

typedef struct tsr_context_info {
  size_t size;
  int64_t n_ctx;
  int64_t n_batch;
  int64_t n_ubatch;
  int32_t n_seq_max;
  int64_t n_steps;              /* kernels per micro-batch, over all devices */
  int64_t n_reduces;            /* of these, sums of two or more pieces */
  int64_t n_copies;             /* between devices, per micro-batch */
  int64_t copy_bytes_per_token; /* between devices */
} tsr_context_info;

/* What was made of the options and the placement. struct_size: sizeof *info. */
TSR_API tsr_status tsr_context_get_info(tsr_context* context, tsr_context_info* info, size_t struct_size);

typedef struct tsr_batch {
  size_t size;
  size_t n_tokens;
  const int32_t* tokens;          /* [n_tokens] token ids */
  const int32_t* seqs;            /* [n_tokens] the sequence that each is added to; NULL: all to sequence 0 */
  const uint8_t* wants_logits;    /* [n_tokens] 0 or 1; NULL: the last token only */
  const uint8_t* wants_embedding; /* [n_tokens] 0 or 1; NULL: none. Only with tsr_context_options.embeddings */
} tsr_batch;

/* Writes an empty batch. struct_size: sizeof *batch. Errors: TSR_INVALID_ARGUMENT. */
TSR_API tsr_status tsr_batch_init(tsr_batch* batch, size_t struct_size);

/* Appends the tokens, in order, each to its sequence, and leaves a row of logits, or an embedding, for each token that
 * wants it. Blocks. Errors: TSR_INVALID_ARGUMENT (token or sequence out of range, a wish that is not 0 or 1, more than
 * n_batch tokens, none at all, an embedding of a context without), TSR_CACHE_FULL, TSR_IO (the model file was cut short
 * or cannot be read): every sequence is as it was, the last rows may be gone. TSR_DEVICE_LOST, TSR_OUT_OF_MEMORY: the
 * context may be dead; then it says so whenever a sequence is to be changed, and can only be freed. */
TSR_API tsr_status tsr_context_decode(tsr_context* context, const tsr_batch* batch);

/* Rows that the last decode left. */
TSR_API tsr_status tsr_context_n_logits(tsr_context* context, int64_t* n_rows);
/* Row number `row`, in the order of the tokens that wanted one. *logits: [*n_vocab] f32, valid until the next decode in
 * this context. n_vocab may be NULL. Errors: TSR_INVALID_ARGUMENT when there is no such row. */
TSR_API tsr_status tsr_context_logits(tsr_context* context, int64_t row, const float** logits, size_t* n_vocab);

/* Embeddings that the last decode left. */
TSR_API tsr_status tsr_context_n_embeddings(tsr_context* context, int64_t* n_rows);
/* The same as tsr_context_logits for embeddings: *embedding is what the model's head reads of that token, the row
 * behind the last norm, [*n_embd] f32, neither pooled nor normalised. For a text's embedding take its last token's row
 * or the mean of all, and divide it by its length. */
TSR_API tsr_status tsr_context_embedding(tsr_context* context, int64_t row, const float** embedding, size_t* n_embd);

/* Tokens that a sequence holds. */
TSR_API tsr_status tsr_context_length(tsr_context* context, int32_t seq, int64_t* length);
/* Forgets positions >= new_length; 0 removes the sequence's content. Errors: TSR_INVALID_ARGUMENT (longer than now);
 * TSR_UNSUPPORTED where a sliding window has let go of what the new end would need, or where the model has recurrent
 * state and there is no snapshot of it at new_length (0 and the present length always work). */
TSR_API tsr_status tsr_context_truncate(tsr_context* context, int32_t seq, int64_t new_length);
/* Goes back as far as it takes: forgets positions behind the largest length <= wanted that tsr_context_truncate() would
 * accept, and says it. With recurrent state that is the position of a snapshot, else `wanted` itself (the present
 * length where it is less); 0 where nothing of it is left. Errors: TSR_INVALID_ARGUMENT (no such sequence, wanted below
 * 0). */
TSR_API tsr_status tsr_context_rewind(tsr_context* context, int32_t seq, int64_t wanted, int64_t* length);
/* Keeps a snapshot of the sequence's recurrent state at its present length, to which it can go back then. Where all
 * places are taken, the one used least recently goes. Does nothing where no snapshots are kept. Errors:
 * TSR_INVALID_ARGUMENT; TSR_OUT_OF_MEMORY (on the host): there is none, the sequence is as it was. */
TSR_API tsr_status tsr_context_snapshot(tsr_context* context, int32_t seq);
/* Whether the model has recurrent state and the context room for a snapshot of it. */
TSR_API tsr_status tsr_context_keeps_snapshots(tsr_context* context, bool* keeps);
/* Makes `to` a copy of the first `length` positions of `from`; whole pages of the cache are shared, not copied. Errors:
 * as tsr_context_truncate(); TSR_INVALID_ARGUMENT when both are the same. */
TSR_API tsr_status tsr_context_fork(tsr_context* context, int32_t from, int32_t to, int64_t length);
/* Empties every sequence. */
TSR_API tsr_status tsr_context_clear(tsr_context* context);

/* ---- Placements -------------------------------------------------------------------------------------------------- */
/* Where a model lives may change while its contexts are in use. A switch moves the weights, and the cache and recurrent
 * state of every context of the model, between two of their calls; afterwards all is as before: sequences, snapshots,
 * the rows of the last decode (pointers to them too), samplers. The next token can be drawn at once, and is the one
 * that would have come without the switch, bit for bit on devices of one kernel class. Any thread may call these
 * functions, also while other threads decode: a switch waits for its turn. A failure, of whatever kind and at whatever
 * point, leaves the old placement, whole and working, and tsr_last_error() says why; only after TSR_DEVICE_LOST the
 * contexts of the model are dead. Memory: while bytes move, each range of a device (weights, each context's cache,
 * state and scratch) has the larger size of before and after, and staging comes on top, as much as there is room for up
 * to staging_bytes; what is copied ahead, if that is asked for, takes up to ahead_bytes more. */

#ifdef __cplusplus
typedef enum tsr_split_mode : int { /* any number may be passed: the functions check it */
#else
typedef enum tsr_split_mode {
#endif
  TSR_SPLIT_NONE = 0,   /* all on the first device with a share */
  TSR_SPLIT_LAYER = 1,  /* whole layers, by shares of their number */
  TSR_SPLIT_TENSOR = 2, /* of every layer a part on every device, by shares of the cuts */
  TSR_SPLIT_CUSTOM = 3  /* a home for every tile */
} tsr_split_mode;

/* "none", "layer", "tensor", "custom"; "unknown" for other numbers. Static. Never fails. */
TSR_API const char* tsr_split_mode_name(tsr_split_mode mode);

/* How a switch runs. */
typedef struct tsr_switch_options {
  size_t size;
  bool no_wait;             /* TSR_BUSY, rather than waiting, when another call of the model or its contexts runs */
  double deadline_s;        /* from the call on; then TSR_DEADLINE_EXCEEDED. 0: none */
  uint64_t staging_bytes;   /* per device, at most. 0: 64 MiB */
  tsr_progress_fn progress; /* in the model's own thread, 0 and 1 included; false: TSR_CANCELLED. It may call nothing of
                               the model and its contexts (TSR_BUSY), and must free neither. NULL: none */
  void* progress_user;
  uint64_t ahead_bytes; /* per device, at most: what weights may take beyond both placements, so that they are copied
                           while other threads decode, before the switch and, into their places, once more after it;
                           progress is then also called in the calling thread. 0, or with no_wait: none are */
} tsr_switch_options;

/* Writes the defaults. struct_size: sizeof *options. Errors: TSR_INVALID_ARGUMENT. */
TSR_API tsr_status tsr_switch_options_init(tsr_switch_options* options, size_t struct_size);

/* A placement that is asked for, or that holds. Pointers that the caller sets are read during the call only. */
typedef struct tsr_placement {
  size_t size;
  tsr_split_mode split_mode;
  const double* tensor_split; /* [n_tensor_split] one share per device, scaled by their sum; none: even. They are
                                 rounded to what layers and cuts express */
  size_t n_tensor_split;
  const int32_t*
      homes; /* TSR_SPLIT_CUSTOM: [n_homes] the device of each tile, in the order of tsr_model_list_tiles() */
  size_t n_homes;
  uint64_t version;                  /* of what holds: one more after each switch. Not read */
  const tsr_switch_options* options; /* of a switch to it; NULL: the defaults */
} tsr_placement;

/* Writes TSR_SPLIT_LAYER with even shares. struct_size: sizeof *placement. Errors: TSR_INVALID_ARGUMENT. */
TSR_API tsr_status tsr_placement_init(tsr_placement* placement, size_t struct_size);

/* Switches. tensor_split: as many shares as the model has devices (tsr_model_list_devices()); NULL: even. They wait as
 * long as it takes. Errors: TSR_INVALID_ARGUMENT (the mode, the shares), TSR_DOES_NOT_FIT (per device: lacking, needed,
 * free), TSR_OUT_OF_MEMORY, TSR_BUSY (from within a callback of the model), TSR_DEVICE_LOST. */
TSR_API tsr_status tsr_model_set_split_mode(tsr_model* model, tsr_split_mode mode, const double* tensor_split);
/* The same for the model of a context, which is in use by other calls or not. */
TSR_API tsr_status tsr_context_set_split_mode(tsr_context* context, tsr_split_mode mode, const double* tensor_split);
/* The same in its general form. Errors also: TSR_CANCELLED, TSR_DEADLINE_EXCEEDED, TSR_BUSY, as the options ask. */
TSR_API tsr_status tsr_model_set_placement(tsr_model* model, const tsr_placement* placement);
TSR_API tsr_status tsr_context_set_placement(tsr_context* context, const tsr_placement* placement);

/* The split mode that holds. Errors: TSR_UNSUPPORTED when only the vocabulary was loaded. */
TSR_API tsr_status tsr_model_get_split_mode(const tsr_model* model, tsr_split_mode* mode);
/* The placement that holds, as it was asked for: given to tsr_model_set_placement() later, it comes again. One block;
 * free it with tsr_free(). struct_size: sizeof(tsr_placement). Errors: as tsr_model_get_split_mode(). */
TSR_API tsr_status tsr_model_placement(const tsr_model* model, tsr_placement** placement, size_t struct_size);

/* ---- States of contexts ------------------------------------------------------------------------------------------ */
/* A state is what a context remembers, as bytes: the tokens of its sequences and what the cache holds of them, and of a
 * whole context the rows of logits that the last decode left. It depends on the model, the tokens and the types of the
 * cache alone: saved under one placement it is restored under any other, and saved again it is the same byte by byte.
 * Checksums cover all of it. `seq` is a sequence, or TSR_ALL_SEQUENCES for the whole context; the state of
 * a sequence may be restored into any other, a whole context's replaces everything. */

#define TSR_ALL_SEQUENCES (-1)

/* Bytes of the state as it is now. Errors: TSR_INVALID_ARGUMENT; TSR_IO when the model's file has changed. */
TSR_API tsr_status tsr_state_size(tsr_context* context, int32_t seq, size_t* n_bytes);
/* Writes it. bytes: [n_bytes], exactly tsr_state_size(). Errors: as there; TSR_INVALID_ARGUMENT for another n_bytes. */
TSR_API tsr_status tsr_state_get(tsr_context* context, int32_t seq, void* bytes, size_t n_bytes);
/* Puts it in place of what the sequence (the context) holds. Errors: TSR_INVALID_DATA (no state, cut short or damaged),
 * TSR_UNSUPPORTED (other types of cache, which are never converted; a later version), TSR_INVALID_ARGUMENT (another
 * model; a sequence's state for a context or the other way round; a sequence beyond n_seq_max), TSR_CACHE_FULL (more
 * tokens than n_ctx), TSR_OUT_OF_MEMORY: the context is as it was. TSR_DEVICE_LOST: as tsr_context_decode(). */
TSR_API tsr_status tsr_state_set(tsr_context* context, int32_t seq, const void* bytes, size_t n_bytes);
/* The same into a file, which is replaced as a whole or, on an error, not at all. Errors also: TSR_NOT_FOUND (no such
 * folder), TSR_IO. */
TSR_API tsr_status tsr_state_save(tsr_context* context, int32_t seq, const char* path);
/* The same from a file, which must not be written to meanwhile. Errors also: TSR_NOT_FOUND, TSR_IO. */
TSR_API tsr_status tsr_state_load(tsr_context* context, int32_t seq, const char* path);
/* The tokens that a sequence holds. *ids: *n ids; free it with tsr_free(). */
TSR_API tsr_status tsr_context_tokens(tsr_context* context, int32_t seq, int32_t** ids, size_t* n);

/* ---- Sampling ---------------------------------------------------------------------------------------------------- */

typedef struct tsr_sampler tsr_sampler;

/* Asks for a random seed. */
#define TSR_RANDOM_SEED UINT64_C(0xFFFFFFFF)

typedef struct tsr_logit_bias {
  int32_t id; /* of the vocabulary, where the sampler is made with a model */
  float bias; /* added before everything else; -INFINITY: never chosen */
} tsr_logit_bias;

/* Names, defaults and meaning are llama.cpp's, but numbers outside the ranges, whose ends are included, are refused.
 * Pointers are read during tsr_sampler_create() only. */
typedef struct tsr_sampler_options {
  size_t size;
  uint64_t seed;           /* default TSR_RANDOM_SEED. One seed and equal logits give equal tokens on every machine */
  float temperature;       /* 0 or more; default 0.8. 0: always the largest logit */
  float dynatemp_range;    /* 0 or more; default 0. Above: temperature within +- range, by the distribution's entropy */
  float dynatemp_exponent; /* 0 or more; default 1 */
  int32_t top_k;           /* -1 or more; default 40. Keep the k largest; -1, 0: all */
  float top_p;             /* 0 to 1; default 0.95. Keep the fewest whose probabilities reach p; 1: all */
  float min_p;             /* 0 to 1; default 0.05. Keep those at least p times as probable as the best; 0: all */
  float typical_p;         /* 0 to 1; default 1: off */
  float top_n_sigma;       /* -1 or more; default -1. 0 or less: off */
  float xtc_probability;   /* 0 to 1; default 0: off */
  float xtc_threshold;     /* 0 to 1; default 0.1 */
  int32_t min_keep;        /* 0 or more; default 0. top_p, min_p, typical_p and xtc leave at least as many */
  int32_t repeat_last_n;   /* -1 or more; default 64. Tokens that the penalties look back; 0: none, -1: all */
  float repeat_penalty;    /* 0 or more; default 1: off */
  float frequency_penalty; /* any number; default 0: off */
  float presence_penalty;  /* any number; default 0: off */
  float dry_multiplier;    /* 0 or more; default 0: off */
  float dry_base;          /* 0 or more; default 1.75 */
  int32_t dry_allowed_length;               /* 0 or more; default 2 */
  int32_t dry_penalty_last_n;               /* -1 or more; default 64. 0: off, -1: all */
  int32_t mirostat;                         /* 0 to 2; default 0: off. 1, 2: instead of most of the chain */
  float mirostat_tau;                       /* 0 or more; default 5 */
  float mirostat_eta;                       /* 0 or more; default 0.1 */
  const char* const* dry_sequence_breakers; /* [n_dry_sequence_breakers]; NULL: the default ones */
  size_t n_dry_sequence_breakers;
  const tsr_logit_bias* logit_bias; /* [n_logit_bias] */
  size_t n_logit_bias;
  const char* samplers;    /* the chain's steps, as "top_k;temperature"; NULL: penalties, dry, top_n_sigma, top_k,
                              typ_p, top_p, min_p, xtc, temperature */
  const char* grammar;     /* NULL: any text; GBNF that the text must follow: only tokens that fit are drawn, and those
                              that end the generation where the text may end. It begins with the first token drawn */
  const char* json_schema; /* the same as a JSON schema; at most one of both */
  float adaptive_target;   /* -1 to 1; default -1. Below 0: off; else what adaptive_p favours, where samplers has it */
  float adaptive_decay;    /* 0 to 0.99; default 0.9. Of what it has seen, token by token */
} tsr_sampler_options;

/* Writes the defaults, which are the program's. struct_size: sizeof *options. Errors: TSR_INVALID_ARGUMENT. */
TSR_API tsr_status tsr_sampler_options_init(tsr_sampler_options* options, size_t struct_size);
/* The same with what the model file recommends in their place. Its texts are valid as long as the model handle. */
TSR_API tsr_status tsr_model_sampler_options_init(const tsr_model* model, tsr_sampler_options* options,
                                                  size_t struct_size);

/* model: whose tokens spell the sequence breakers of DRY, the grammar and what infill (a step like those of samplers)
 * looks at; may be NULL where there is none of these. options:
 * NULL: the defaults. Tokens that a model must never choose (tsr_vocab_info.suppress_ids) are banned by logit_bias, if
 * at all. Errors: TSR_INVALID_ARGUMENT (names the setting and its range, or the grammar's line and column, or the
 * schema's place); TSR_UNSUPPORTED (a keyword of the schema that cannot be enforced). */
TSR_API tsr_status tsr_sampler_create(const tsr_model* model, const tsr_sampler_options* options,
                                      tsr_sampler** sampler);
TSR_API void tsr_sampler_free(tsr_sampler* sampler);

/* Draws a token. logits: [n_vocab] f32; NaN and -inf are never chosen. Errors: TSR_INVALID_DATA when there is
 * nothing to choose (a damaged model, every token banned, or none that the grammar allows: its text is complete or
 * cannot be completed): end the generation; *id is TSR_NO_TOKEN then. */
TSR_API tsr_status tsr_sampler_sample(tsr_sampler* sampler, const float* logits, size_t n_vocab, int32_t* id);
/* The same from a row of the context's last decode. */
TSR_API tsr_status tsr_sampler_sample_row(tsr_sampler* sampler, tsr_context* context, int64_t row, int32_t* id);
/* Adds tokens to the history that penalties and DRY look at: the prompt first, then each token that was chosen;
 * sampling alone does not. From the first draw on a grammar follows them, too. ids: [n]. */
TSR_API tsr_status tsr_sampler_accept(tsr_sampler* sampler, const int32_t* ids, size_t n);
/* Forgets accepted tokens, and begins again with random numbers (from the same seed) and mirostat. */
TSR_API tsr_status tsr_sampler_reset(tsr_sampler* sampler);
/* The seed in use, never TSR_RANDOM_SEED. */
TSR_API tsr_status tsr_sampler_seed(const tsr_sampler* sampler, uint64_t* seed);

#ifdef __cplusplus
}
#endif

#endif
