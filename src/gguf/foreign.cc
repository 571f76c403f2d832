// Telling people what a file is when it is no GGUF file.

#include <algorithm>
#include <array>
#include <cctype>
#include <fmt/core.h>
#include <string>

#include "gguf/parse.h"

namespace tessera {
namespace {

struct Signature {
  std::string_view begins;  // lower case
  std::string_view means;
};

// Compared without case and after leading white space.
constexpr auto kTextSignatures = std::to_array<Signature>({
    {"<!doctype html", "it is an HTML page saved under this name (a login or error page?); download the file again"},
    {"<html", "it is an HTML page saved under this name (a login or error page?); download the file again"},
    {"<head", "it is an HTML page saved under this name (a login or error page?); download the file again"},
    {"<?xml", "it is an XML document (an error message of a server?); download the file again"},
    {"version https://git-lfs", "it is a Git LFS pointer, not the file itself; fetch it with 'git lfs pull'"},
});

constexpr auto kBinarySignatures = std::to_array<Signature>({
    {"PK\x03\x04", "it is a ZIP archive or PyTorch checkpoint, not a GGUF file; convert it first"},
    {"\x1f\x8b", "it is gzip-compressed; unpack it first"},
    {"\x28\xb5\x2f\xfd", "it is zstd-compressed; unpack it first"},
    {"lmgg", "it is a GGML file of the years before GGUF; convert it first"},
    {"fmgg", "it is a GGMF file of the years before GGUF; convert it first"},
    {"tjgg", "it is a GGJT file of the years before GGUF; convert it first"},
    {"FUGG", "it was written for big-endian machines; only little-endian GGUF is supported"},
});

bool is_text_byte(unsigned char c) {
  return c >= 0x20 || c == '\n' || c == '\r' || c == '\t' || c == '\f';
}

}  // namespace

std::string describe_foreign(std::span<const std::byte> bytes) {
  const std::string_view all(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::string_view head = all.substr(0, 512);
  if (head.empty()) {
    return "it is empty";
  }
  if (std::string_view("GGUF").starts_with(head)) {
    return fmt::format("it ends after {} bytes, inside its header: an incomplete download?", head.size());
  }
  for (const Signature& signature : kBinarySignatures) {
    if (head.starts_with(signature.begins)) {
      return std::string(signature.means);
    }
  }
  std::string_view text = head;
  if (text.starts_with("\xEF\xBB\xBF")) {
    text.remove_prefix(3);
  }
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  for (const Signature& signature : kTextSignatures) {
    const auto same = [](char a, char b) { return std::tolower(static_cast<unsigned char>(a)) == b; };
    if (text.size() >= signature.begins.size() &&
        std::equal(signature.begins.begin(), signature.begins.end(), text.begin(),
                   [&](char wanted, char found) { return same(found, wanted); })) {
      return std::string(signature.means);
    }
  }
  if (head.size() > 8 && head[8] == '{') {
    return "it looks like a safetensors file, not a GGUF file; convert it first";
  }
  if (std::ranges::all_of(head, [](char c) { return is_text_byte(static_cast<unsigned char>(c)); })) {
    return "it is a text file, not a GGUF file";
  }
  if (std::ranges::all_of(head, [](char c) { return c == '\0'; })) {
    return "it begins with zeros where 'GGUF' should stand: an unfinished download?";
  }
  return fmt::format("it is not a GGUF file: it begins with {} instead of 'GGUF'", quoted(head.substr(0, 4)));
}

std::string quoted(std::string_view name) {
  constexpr size_t kMaxShown = 96;  // in characters as shown: an escaped byte takes four
  std::string text = "'";
  for (const char c : name) {
    if (text.size() >= kMaxShown) {
      return text + "…'";
    }
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7F && c != '\'' && c != '\\') {
      text += c;
    } else {
      text += fmt::format("\\x{:02x}", byte);
    }
  }
  return text + "'";
}

}  // namespace tessera
