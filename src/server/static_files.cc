#include "server/static_files.h"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <optional>
#include <utility>

#include "base/files.h"
#include "base/xxh64.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kFileBytesMax = 64U << 20;  // of a folder: each is read whole

// The built-in page needs its own files and its own server, nothing else.
constexpr std::string_view kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

constexpr std::pair<std::string_view, std::string_view> kMimeTypes[] = {
    {".html", "text/html; charset=utf-8"},
    {".css", "text/css; charset=utf-8"},
    {".js", "text/javascript; charset=utf-8"},
    {".mjs", "text/javascript; charset=utf-8"},
    {".json", "application/json; charset=utf-8"},
    {".webmanifest", "application/manifest+json"},
    {".svg", "image/svg+xml"},
    {".png", "image/png"},
    {".jpg", "image/jpeg"},
    {".jpeg", "image/jpeg"},
    {".gif", "image/gif"},
    {".webp", "image/webp"},
    {".ico", "image/x-icon"},
    {".woff2", "font/woff2"},
    {".wasm", "application/wasm"},
    {".txt", "text/plain; charset=utf-8"},
    {".md", "text/plain; charset=utf-8"},
};

// "a/b.js" of "/a/b.js"; nothing where a part is empty, hidden or "..".
std::optional<std::string> relative_name(std::string_view path) {
  if (!path.starts_with('/') || path.find('\0') != std::string_view::npos ||
      path.find("/.") != std::string_view::npos || path.find("//") != std::string_view::npos) {
    return std::nullopt;
  }
  return std::string(path.substr(1)) + (path.ends_with('/') ? "index.html" : "");
}

std::optional<std::string> built_in(const std::string& name) {
  for (const PageFile& file : page_files()) {
    if (file.name == name) {
      return std::string(file.bytes);
    }
  }
  return std::nullopt;
}

Result<std::optional<std::string>> from_folder(const std::string& folder, const std::string& name) {
  std::error_code error;
  const fs::path root = fs::canonical(folder, error);
  const fs::path file = error ? fs::path() : fs::canonical(root / name, error);
  const bool is_inside = !error && std::ranges::mismatch(root, file).in1 == root.end();
  if (!is_inside || !fs::is_regular_file(file, error)) {
    return std::optional<std::string>();
  }
  ASSIGN_OR_RETURN(std::string bytes, read_file(file.string(), kFileBytesMax));
  return std::optional(std::move(bytes));
}

// Whether an If-None-Match names the tag; proxies may have made it a weak one.
bool names_tag(std::string_view header, std::string_view tag) {
  return header == "*" || header.find(tag) != std::string_view::npos;
}

}  // namespace

std::string_view mime_type(std::string_view name) {
  const auto* found = std::ranges::find_if(kMimeTypes, [&](const auto& row) { return name.ends_with(row.first); });
  return found == std::end(kMimeTypes) ? "application/octet-stream" : found->second;
}

Result<bool> serve_static(const std::string& folder, const HttpRequest& request, HttpExchange& exchange) {
  const std::optional<std::string> name = relative_name(request.path);
  if (!name) {
    return false;
  }
  std::optional<std::string> bytes;
  if (folder.empty()) {
    bytes = built_in(*name);
  } else {
    ASSIGN_OR_RETURN(bytes, from_folder(folder, *name));
  }
  if (!bytes) {
    return false;
  }
  const std::string tag = fmt::format("\"{:016x}\"", xxh64(std::as_bytes(std::span(*bytes))));
  HttpHeaders headers = {{"ETag", tag}, {"Cache-Control", "no-cache"}, {"X-Content-Type-Options", "nosniff"}};
  if (folder.empty()) {
    headers.emplace_back("Content-Security-Policy", kPolicy);
    headers.emplace_back("Referrer-Policy", "no-referrer");
  }
  const bool is_known = names_tag(request.header("If-None-Match"), tag);
  exchange.reply(is_known ? 304 : 200, mime_type(*name), is_known ? std::string() : std::move(*bytes), headers);
  return true;
}

}  // namespace tessera
