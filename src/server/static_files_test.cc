#include "server/static_files.h"

#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/files.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

class Recorder final : public HttpExchange {
 public:
  void reply(int status, std::string_view content_type, std::string body, const HttpHeaders& headers) override {
    status_ = status;
    type_ = content_type;
    body_ = std::move(body);
    sent_.headers = headers;
  }
  void add_header(std::string /*name*/, std::string /*value*/) override {}
  void begin_events(std::chrono::seconds /*ping*/) override {}
  bool send_events(std::string_view /*text*/) override { return false; }
  void end_events() override {}
  void on_gone(std::function<void()> /*fn*/) override {}
  void go_on(std::function<void()> fn) override { fn(); }
  [[nodiscard]] bool gone() const override { return false; }
  [[nodiscard]] int status() const override { return status_; }

  int status_ = 0;
  std::string type_;
  std::string body_;
  HttpRequest sent_;  // for its headers
};

// What a GET of the path brings; status 0: nothing.
Recorder get(const std::string& folder, const std::string& path, const std::string& tag = {}) {
  HttpRequest request;
  request.method = "GET";
  request.path = path;
  request.headers = {{"If-None-Match", tag}};
  Recorder recorder;
  const auto served = serve_static(folder, request, recorder);
  EXPECT_TRUE(served.ok());
  EXPECT_EQ(served.ok() && *served, recorder.status_ != 0);
  return recorder;
}

TEST(StaticFiles, PageIsBuiltIn) {
  const Recorder index = get("", "/");
  EXPECT_EQ(index.status_, 200);
  EXPECT_EQ(index.type_, "text/html; charset=utf-8");
  EXPECT_TRUE(index.body_.starts_with("<!doctype html>"));
  EXPECT_EQ(index.sent_.header("Content-Security-Policy").substr(0, 18), "default-src 'none'");
  EXPECT_EQ(get("", "/index.html").body_, index.body_);
  for (const PageFile& file : page_files()) {
    EXPECT_EQ(get("", "/" + std::string(file.name)).body_, file.bytes);
    EXPECT_NE(mime_type(file.name), "application/octet-stream") << file.name;
  }
  EXPECT_EQ(get("", "/nothing.js").status_, 0);
  EXPECT_EQ(get("", "/../static_files.cc").status_, 0);
}

TEST(StaticFiles, KnownTagIsNotSentAgain) {
  const std::string tag(get("", "/").sent_.header("ETag"));
  for (const std::string& known : {tag, "W/" + tag, "\"x\", " + tag, std::string("*")}) {
    const Recorder again = get("", "/", known);
    EXPECT_EQ(again.status_, 304);
    EXPECT_EQ(again.body_, "");
  }
  EXPECT_EQ(get("", "/", "\"0123456789abcdef\"").status_, 200);
}

TEST(StaticFiles, NothingOutsideOfTheFolder) {
  const fs::path base = fs::path(::testing::TempDir()) / ("static_files_test." + std::to_string(getpid()));
  fs::remove_all(base);
  fs::create_directories(base / "www/sub");
  for (const char* file : {"www/index.html", "www/sub/a.css", "www/.hidden", "secret", "www2"}) {
    ASSERT_TRUE(write_file((base / file).string(), file).ok());
  }
  fs::create_symlink("../secret", base / "www/out");
  fs::create_symlink("..", base / "www/up");
  fs::create_symlink("sub/a.css", base / "www/in.css");
  const std::string folder = (base / "www").string();
  EXPECT_EQ(get(folder, "/").body_, "www/index.html");
  EXPECT_EQ(get(folder, "/sub/a.css").type_, "text/css; charset=utf-8");
  EXPECT_EQ(get(folder, "/in.css").body_, "www/sub/a.css");
  for (const std::string path : {"/../secret", "/sub/../../secret", "/out", "/up/secret", "/.hidden", "//etc/passwd",
                                 "/sub", "/sub/", "secret", "", "/../www2", "/./index.html"}) {
    EXPECT_EQ(get(folder, path).status_, 0) << path;
  }
  EXPECT_EQ(get(folder, std::string("/index.html\0.css", 16)).status_, 0);
  EXPECT_EQ(get((base / "missing").string(), "/").status_, 0);
  fs::remove_all(base);
}

}  // namespace
}  // namespace tessera
