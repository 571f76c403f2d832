#pragma once
// The page at `/`: the files of src/server/page, which the build puts into the program, or those of a folder (--path).
// Everyone may fetch them, with a key or without: what needs one is what the page then asks the server for.

#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "server/http_server.h"

namespace tessera {

/// A file of the page. Points into the program.
struct PageFile {
  std::string_view name;  // "app.js"
  std::string_view bytes;
};

/// All of them, in a table that cmake/embed_page.cmake makes.
std::span<const PageFile> page_files();

/// Content-Type of a file, by the end of its name.
std::string_view mime_type(std::string_view name);

/// Answers a GET or HEAD with the file that `request.path` names ("/" and what ends so: its index.html), or with 304
/// when the client has it. folder: empty for the built-in page. A path that leaves the folder, also by a link, or has
/// a part that begins with a dot finds nothing.
/// Result: false, and nothing is answered, when there is no such file. Errors: kIo, kDoesNotFit (a file too large).
Result<bool> serve_static(const std::string& folder, const HttpRequest& request, HttpExchange& exchange);

}  // namespace tessera
