#pragma once
// The library of the template language: filters, tests, methods and global functions, by name.
//
// All have one signature: `self` is the filtered or tested value, the object of a method, or unused; the result of a
// test is a bool. Each file registers its own table; a name that is in none is not known.

#include <string_view>

#include "tokenizer/template/runtime.h"
#include "tokenizer/template/value.h"

namespace tessera::jinja {

struct LibraryEntry {
  std::string_view name;
  Function function;
};

/// nullptr when there is no such filter or test.
Function find_filter(std::string_view name);
Function find_test(std::string_view name);
/// The method `name` of values of `self`'s type; nullptr when there is none.
Function find_method(const Value& self, std::string_view name);
/// The global function `name` (range, namespace, …); nullptr when there is none.
Function find_global(std::string_view name);

/// Follows an attribute path ("a.b.0", an int, or none) from `item`; undefined parts become `missing` when given.
Result<Value> follow_path(Runtime& runtime, Value item, const Value& path, const Value* missing);
/// A string in lower case, anything else as it is: the key that sorting filters compare.
Result<Value> ignore_case(Runtime& runtime, const Value& value);

// Tables, one per file; each ends with an entry without a function.
extern const LibraryEntry kTextFilters[];
extern const LibraryEntry kSequenceFilters[];
extern const LibraryEntry kSelectionFilters[];
extern const LibraryEntry kValueFilters[];
extern const LibraryEntry kTextMethods[];
extern const LibraryEntry kTests[];
extern const LibraryEntry kGlobals[];

}  // namespace tessera::jinja
