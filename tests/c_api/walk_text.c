/* Walks tokens, vocabulary, streams and chat templates (walk.c). */
#include <string.h>

#include "walk.h"

void walk_tokens(const tsr_model* model) {
  static const char text[] = "Hello w\xc3\xb6rld <|im_end|>";
  int32_t *ids = NULL, *plain = NULL, id = 0;
  size_t n = 0, n_plain = 0, n_bytes = 0, i, total = 0;
  char* back = NULL;
  const char* piece = NULL;
  tsr_token_info info;
  EXPECT_OK(tsr_tokenize(model, text, TSR_NUL_TERMINATED, 0, &plain, &n_plain));
  EXPECT_OK(
      tsr_tokenize(model, text, sizeof text - 1, TSR_TOKENIZE_ADD_SPECIAL | TSR_TOKENIZE_PARSE_SPECIAL, &ids, &n));
  EXPECT(n_plain > n && ids[n - 1] == 286); /* <|im_end|> is one token only where it may be */
  EXPECT_OK(tsr_detokenize(model, plain, n_plain, 0, &back, &n_bytes));
  EXPECT(n_bytes == sizeof text - 1 && memcmp(back, text, sizeof text) == 0);
  tsr_free(back);
  EXPECT_OK(tsr_detokenize(model, plain, n_plain, TSR_DETOKENIZE_VERBATIM | TSR_DETOKENIZE_SHOW_SPECIAL, &back, NULL));
  for (i = 0; i < n_plain; ++i) {
    EXPECT_OK(tsr_token_piece(model, plain[i], &piece, &n_bytes));
    EXPECT(memcmp(back + total, piece, n_bytes) == 0);
    total += n_bytes;
    EXPECT_OK(tsr_token_get_info(model, plain[i], &info, sizeof info));
    EXPECT(info.size == sizeof info && info.type != TSR_TOKEN_CONTROL && !info.is_end);
    EXPECT_OK(tsr_token_find(model, info.text, info.n_text_bytes, &id));
    EXPECT(id == plain[i]);
  }
  EXPECT(total == strlen(back));
  tsr_free(back);
  tsr_free(ids);
  tsr_free(plain);
  EXPECT_OK(tsr_tokenize(model, NULL, 0, 0, &ids, &n));
  EXPECT(n == 0 && ids != NULL);
  tsr_free(ids);
  EXPECT_OK(tsr_detokenize(model, NULL, 0, 0, &back, &n_bytes));
  EXPECT(n_bytes == 0 && back[0] == '\0');
  tsr_free(back);
}

/* This vocabulary asks for a begin token. */
void walk_begin_token(const tsr_model* gemma) {
  int32_t* ids = NULL;
  size_t n = 0, n_framed = 0;
  tsr_vocab_info info;
  tsr_token_info token;
  char* text = NULL;
  EXPECT_OK(tsr_vocab_get_info(gemma, &info, sizeof info));
  EXPECT(strcmp(info.model, "llama") == 0 && info.add_bos && !info.add_eos && info.bos == 2 && info.eos == 1);
  EXPECT(info.unk == 3 && info.n_tokens == 365);
  EXPECT_OK(tsr_tokenize(gemma, "hi", 2, 0, &ids, &n));
  tsr_free(ids);
  EXPECT_OK(tsr_tokenize(gemma, "hi", 2, TSR_TOKENIZE_ADD_SPECIAL, &ids, &n_framed));
  EXPECT(n_framed == n + 1 && ids[0] == info.bos);
  EXPECT_OK(tsr_detokenize(gemma, ids, n_framed, 0, &text, NULL));
  EXPECT(strcmp(text, "hi") == 0);
  tsr_free(text);
  EXPECT_OK(tsr_detokenize(gemma, ids, n_framed, TSR_DETOKENIZE_SHOW_SPECIAL, &text, NULL));
  EXPECT(strcmp(text, "<bos>hi") == 0);
  tsr_free(text);
  tsr_free(ids);
  EXPECT_OK(tsr_token_get_info(gemma, info.bos, &token, sizeof token));
  EXPECT(token.type == TSR_TOKEN_CONTROL && !token.is_end && memcmp(token.text, "<bos>", token.n_text_bytes) == 0);
}

void walk_token_errors(const tsr_model* model) {
  int32_t *ids = NULL, id = 0;
  const int32_t outside[] = {-1, 1 << 30};
  size_t n = 0, n_bytes = 0;
  char* text = NULL;
  const char* piece = NULL;
  tsr_token_info info;
  EXPECT_OK(tsr_detokenize(model, outside, 2, 0, &text, &n_bytes));
  EXPECT(n_bytes == 0);
  tsr_free(text);
  EXPECT_BAD(tsr_tokenize(NULL, "a", 1, 0, &ids, &n));
  EXPECT_BAD(tsr_tokenize(model, NULL, 1, 0, &ids, &n));
  EXPECT_BAD(tsr_tokenize(model, NULL, TSR_NUL_TERMINATED, 0, &ids, &n));
  EXPECT_BAD(tsr_tokenize(model, "a", SIZE_MAX - 1, 0, &ids, &n));
  EXPECT_BAD(tsr_tokenize(model, "a", 1, 4, &ids, &n));
  EXPECT_BAD(tsr_tokenize(model, "a", 1, 0, NULL, &n));
  EXPECT_BAD(tsr_tokenize(model, "a", 1, 0, &ids, NULL));
  EXPECT_BAD(tsr_detokenize(NULL, &id, 1, 0, &text, &n_bytes));
  EXPECT_BAD(tsr_detokenize(model, NULL, 1, 0, &text, &n_bytes));
  EXPECT_BAD(tsr_detokenize(model, &id, 1, 0, NULL, &n_bytes));
  EXPECT_BAD(tsr_detokenize(model, &id, 1, 8, &text, &n_bytes));
  EXPECT_BAD(tsr_token_piece(NULL, 0, &piece, &n_bytes));
  EXPECT_BAD(tsr_token_piece(model, -1, &piece, &n_bytes));
  EXPECT_BAD(tsr_token_piece(model, 288, &piece, &n_bytes));
  EXPECT_BAD(tsr_token_piece(model, 0, NULL, &n_bytes));
  EXPECT_BAD(tsr_token_piece(model, 0, &piece, NULL));
  EXPECT_BAD(tsr_token_get_info(NULL, 0, &info, sizeof info));
  EXPECT_BAD(tsr_token_get_info(model, 288, &info, sizeof info));
  EXPECT_BAD(tsr_token_get_info(model, 0, NULL, sizeof info));
  EXPECT_STATUS(TSR_NOT_FOUND, tsr_token_find(model, "no such token", TSR_NUL_TERMINATED, &id));
  EXPECT(id == TSR_NO_TOKEN);
  EXPECT_BAD(tsr_token_find(NULL, "a", 1, &id));
  EXPECT_BAD(tsr_token_find(model, NULL, 1, &id));
  EXPECT_BAD(tsr_token_find(model, "a", 1, NULL));
}

void walk_vocab(const tsr_model* model) {
  tsr_vocab_info info;
  tsr_token_info token;
  size_t i;
  EXPECT_OK(tsr_vocab_get_info(model, &info, sizeof info));
  EXPECT(info.size == sizeof info && info.n_tokens == 288 && strlen(info.model) > 0 && info.pre_tokenizer != NULL);
  EXPECT(info.bos >= 0 && info.eos >= 0 && info.n_end_ids >= 1 && info.n_suppress_ids == 0);
  for (i = 0; i < info.n_end_ids; ++i) {
    EXPECT_OK(tsr_token_get_info(model, info.end_ids[i], &token, sizeof token));
    EXPECT(token.is_end);
  }
  EXPECT_BAD(tsr_vocab_get_info(NULL, &info, sizeof info));
  EXPECT_BAD(tsr_vocab_get_info(model, NULL, sizeof info));
}

void walk_stream(const tsr_model* model) {
  static const char text[] = "gr\xc3\xbc\xc3\x9f dich";
  tsr_stream *stream = NULL, *none = NULL;
  int32_t* ids = NULL;
  size_t n = 0, n_bytes = 0, i;
  const char* piece = NULL;
  char all[64] = "";
  EXPECT_OK(tsr_stream_create(model, true, &stream));
  EXPECT_OK(tsr_tokenize(model, text, TSR_NUL_TERMINATED, 0, &ids, &n));
  for (i = 0; i < n; ++i) {
    EXPECT_OK(tsr_stream_push(stream, ids[i], &piece, &n_bytes));
    EXPECT(strlen(piece) == n_bytes && (n_bytes == 0 || (piece[0] & 0xc0) != 0x80)); /* begins with a character */
    strncat(all, piece, sizeof all - strlen(all) - 1);
  }
  EXPECT_OK(tsr_stream_flush(stream, &piece, NULL));
  strncat(all, piece, sizeof all - strlen(all) - 1);
  EXPECT(strstr(all, text) != NULL);
  EXPECT_BAD(tsr_stream_push(stream, -1, &piece, &n_bytes));
  EXPECT(piece == NULL);
  EXPECT_BAD(tsr_stream_push(stream, 0, NULL, &n_bytes));
  EXPECT_BAD(tsr_stream_push(NULL, 0, &piece, &n_bytes));
  EXPECT_BAD(tsr_stream_flush(NULL, &piece, &n_bytes));
  EXPECT_BAD(tsr_stream_flush(stream, NULL, &n_bytes));
  EXPECT_BAD(tsr_stream_create(NULL, false, &none));
  EXPECT(none == NULL);
  EXPECT_BAD(tsr_stream_create(model, false, NULL));
  tsr_stream_free(stream);
  tsr_stream_free(NULL);
  tsr_free(ids);
}

void walk_templates(const tsr_model* model) {
  static const char source[] = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}[assistant]";
  static const char json[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}";
  const tsr_message messages[] = {{"user", "hi"}}, bad[] = {{"user", NULL}}, worse[] = {{NULL, "hi"}};
  tsr_chat_template *chat = NULL, *own = NULL, *broken = NULL;
  char *text = NULL, *again = NULL;
  int32_t *ids = NULL, *same = NULL;
  size_t n_bytes = 0, n = 0, n_same = 0;
  EXPECT_OK(tsr_chat_template_create(model, source, &chat));
  EXPECT_OK(tsr_chat_template_create(model, NULL, &own));
  EXPECT_OK(tsr_chat_template_render(chat, messages, 1, &text, &n_bytes));
  EXPECT(strcmp(text, "[user]hi[assistant]") == 0 && n_bytes == strlen(text));
  EXPECT_OK(tsr_chat_template_render_json(chat, json, TSR_NUL_TERMINATED, &again, NULL));
  EXPECT(strcmp(text, again) == 0);
  EXPECT_OK(tsr_chat_template_encode(own, messages, 1, &ids, &n));
  EXPECT_OK(tsr_chat_template_encode_json(own, json, sizeof json - 1, &same, &n_same));
  EXPECT(n > 0 && n == n_same && memcmp(ids, same, n * sizeof *ids) == 0 && ids[0] == 285); /* <|im_start|> */
  tsr_free(text);
  tsr_free(again);
  tsr_free(ids);
  tsr_free(same);

  EXPECT_STATUS(TSR_INVALID_DATA, tsr_chat_template_create(model, "{% for %}", &broken));
  EXPECT(broken == NULL);
  EXPECT_BAD(tsr_chat_template_create(NULL, NULL, &broken));
  EXPECT_BAD(tsr_chat_template_create(model, NULL, NULL));
  EXPECT_BAD(tsr_chat_template_render(chat, bad, 1, &text, &n_bytes));
  EXPECT(text == NULL && n_bytes == 0);
  EXPECT_BAD(tsr_chat_template_render(chat, worse, 1, &text, &n_bytes));
  EXPECT_BAD(tsr_chat_template_render(chat, NULL, 1, &text, &n_bytes));
  EXPECT_BAD(tsr_chat_template_render(NULL, messages, 1, &text, &n_bytes));
  EXPECT_BAD(tsr_chat_template_render(chat, messages, 1, NULL, &n_bytes));
  EXPECT_BAD(tsr_chat_template_render_json(chat, "{", 1, &text, &n_bytes));
  EXPECT_BAD(tsr_chat_template_render_json(chat, NULL, 1, &text, &n_bytes));
  EXPECT_BAD(tsr_chat_template_render_json(NULL, json, 1, &text, &n_bytes));
  EXPECT_BAD(tsr_chat_template_render_json(chat, json, TSR_NUL_TERMINATED, NULL, &n_bytes));
  EXPECT_BAD(tsr_chat_template_encode(NULL, messages, 1, &ids, &n));
  EXPECT_BAD(tsr_chat_template_encode(chat, bad, 1, &ids, &n));
  EXPECT_BAD(tsr_chat_template_encode(chat, messages, 1, NULL, &n));
  EXPECT_BAD(tsr_chat_template_encode(chat, messages, 1, &ids, NULL));
  EXPECT_BAD(tsr_chat_template_encode_json(NULL, json, TSR_NUL_TERMINATED, &ids, &n));
  EXPECT_BAD(tsr_chat_template_encode_json(chat, "no json", TSR_NUL_TERMINATED, &ids, &n));
  EXPECT_BAD(tsr_chat_template_encode_json(chat, json, TSR_NUL_TERMINATED, NULL, &n));
  EXPECT_BAD(tsr_chat_template_encode_json(chat, json, TSR_NUL_TERMINATED, &ids, NULL));
  tsr_chat_template_free(chat);
  tsr_chat_template_free(own);
  tsr_chat_template_free(NULL);
}
