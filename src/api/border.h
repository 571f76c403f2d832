#pragma once
// The border between C and the engine: failures become codes with a text, structs of any version are read and written,
// results become blocks that C frees. Private to this room.
//
// Nothing is thrown across the border: every function of tessera.h that can fail runs its body inside guarded().

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/status.h"
#include "tessera/tessera.h"

namespace tessera::api {

/// The message with the flags in it named as the members of the C structs that stand for them.
std::string with_member_names(std::string_view message);

/// Notes why a call failed as this thread's last error, in such words. Never throws: without memory the text is a fixed
/// one.
tsr_status fail(ErrorCode code, std::string_view message) noexcept;

/// The failure that the exception being handled stands for. REQUIRES: called inside a catch block.
tsr_status fail_with_current_exception() noexcept;

/// Runs a function's body, `Status body()`, and turns what comes out of it into a code.
template <typename Body>
tsr_status guarded(Body&& body) noexcept {
  try {
    const Status status = body();
    return status.ok() ? TSR_OK : fail(status.code(), status.message());
  } catch (...) {
    return fail_with_current_exception();
  }
}

/// kInvalidArgument: an argument is NULL.
Status missing(const char* argument);

/// Missing unless pointer is set.
template <typename T>
Status need(const T* pointer, const char* argument) {
  return pointer != nullptr ? Status() : missing(argument);
}

/// Sets an output to its empty value if there is one; kInvalidArgument if there is none.
template <typename T>
Status need_output(T* output, const char* argument, T empty = {}) {
  TRY(need(output, argument));
  *output = empty;
  return {};
}

/// The same for an array or text whose size need not be wanted.
template <typename T>
Status need_sized_output(T** output, const char* argument, size_t* size) {
  if (size != nullptr) {
    *size = 0;
  }
  return need_output(output, argument);
}

/// A text argument. Errors: kInvalidArgument (NULL; but NULL with 0 bytes is empty).
Result<std::string_view> text_argument(const char* text, size_t n_bytes, const char* argument);

/// An array argument. Errors: kInvalidArgument (NULL with elements).
template <typename T>
Result<std::span<const T>> array_argument(const T* elements, size_t n, const char* argument) {
  if (n > 0) {
    TRY(need(elements, argument));
  }
  return std::span<const T>(elements, n);
}

/// A text option, or what NULL means.
inline std::string option_or(const char* option, const char* fallback) {
  return option != nullptr ? option : fallback;
}

/// Bytes of a caller's struct as the first version had it: none is smaller. A struct that gains its first member needs
/// a line here; tests/c_api/walk_first.c keeps the first layouts.
template <typename T>
inline constexpr size_t kFirstBytes = sizeof(T);
template <>
inline constexpr size_t kFirstBytes<tsr_context_options> = offsetof(tsr_context_options, n_snapshots);
template <>
inline constexpr size_t kFirstBytes<tsr_model_options> = offsetof(tsr_model_options, override_tensor);
template <>
inline constexpr size_t kFirstBytes<tsr_batch> = offsetof(tsr_batch, wants_embedding);
template <>
inline constexpr size_t kFirstBytes<tsr_switch_options> = offsetof(tsr_switch_options, ahead_bytes);
template <>
inline constexpr size_t kFirstBytes<tsr_sampler_options> = offsetof(tsr_sampler_options, grammar);

/// Checks the size of a struct that the caller initialised against the least that there was. Errors: kInvalidArgument.
Status check_struct_size(size_t size, size_t least, const char* what);

/// Checks the struct_size of a struct that the library fills: it has no _init function. Errors: kInvalidArgument.
Status check_result_size(size_t size, const char* what);

/// kInvalidArgument naming the field unless it is least to most.
Status check_field(const char* field, int64_t found, int64_t least, int64_t most);

/// Whether bytes that the library does not know are zero. Errors: kUnsupported.
Status check_unknown_members(const void* given, size_t size, size_t known, const char* what);

/// Writes as many of the defaults as a caller's struct of struct_size bytes takes, zeros behind what is known.
template <typename T>
Status init_struct(T* target, size_t struct_size, T defaults, const char* what) {
  static_assert(std::is_trivially_copyable_v<T>);
  TRY(need(target, what));
  TRY(check_struct_size(struct_size, kFirstBytes<T>, what));
  std::memset(static_cast<void*>(target), 0, struct_size);
  defaults.size = struct_size;
  std::memcpy(static_cast<void*>(target), &defaults, std::min(struct_size, sizeof(T)));
  return {};
}

/// The members of a caller's struct that the library knows; those that an earlier version's lacks are what they are in
/// `known`: 0, or a default that means what that version did.
template <typename T>
Result<T> read_struct(const T* given, const char* what, T known = {}) {
  TRY(need(given, what));
  TRY(check_struct_size(given->size, kFirstBytes<T>, what));
  const size_t n_common = std::min(given->size, sizeof(T));
  TRY(check_unknown_members(given, given->size, n_common, what));
  std::memcpy(&known, given, n_common);
  return known;
}

/// Writes as much of value as the caller's struct of struct_size bytes takes, zeros behind it.
template <typename T>
Status write_struct(void* target, size_t struct_size, T value, const char* what) {
  static_assert(std::is_trivially_copyable_v<T>);
  TRY(need(target, what));
  TRY(check_result_size(struct_size, what));
  std::memset(target, 0, struct_size);
  value.size = std::min(struct_size, sizeof(T));
  std::memcpy(target, &value, value.size);
  return {};
}

/// A block of n bytes for tsr_free(). Throws std::bad_alloc.
char* make_block(size_t n);

/// Hands out bytes as a block with a NUL behind. n_bytes may be null.
void give_text(std::string_view bytes, char** text, size_t* n_bytes);
/// Hands out ids as a block.
void give_ids(std::span<const int32_t> ids, int32_t** target, size_t* n);

/// Hands out rows as an array of structs of struct_size bytes each, in one block with copies of their texts.
/// texts: the members of T that point to texts, which live until this returns. what: the name of T, for errors.
template <typename T>
Status give_list(std::vector<T> rows, std::initializer_list<const char * T::*> texts, size_t struct_size,
                 const char* what, T** list, size_t* n) {
  TRY(check_result_size(struct_size, what));
  if (struct_size % alignof(T) != 0) {
    return {ErrorCode::kInvalidArgument,
            "struct_size is " + std::to_string(struct_size) + "; give sizeof(" + what + ")"};
  }
  size_t n_bytes = rows.size() * struct_size;
  for (const T& row : rows) {
    for (const auto text : texts) {
      n_bytes += std::strlen(row.*text) + 1;
    }
  }
  char* block = make_block(n_bytes);
  char* next = block + rows.size() * struct_size;
  for (size_t i = 0; i < rows.size(); ++i) {
    for (const auto text : texts) {
      const size_t length = std::strlen(rows[i].*text) + 1;
      std::memcpy(next, rows[i].*text, length);
      rows[i].*text = next;
      next += length;
    }
    TRY(write_struct(block + i * struct_size, struct_size, rows[i], what));
  }
  *list = reinterpret_cast<T*>(block);
  *n = rows.size();
  return {};
}

}  // namespace tessera::api
