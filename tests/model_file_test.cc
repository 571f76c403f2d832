// A model file that somebody cuts short or overwrites while it is in use: an error that names the file, never a signal,
// and what the engine holds in memory goes on working.

#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>

#include "runtime/context.h"
#include "tests/support/temp_folder.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class ModelFileTest : public testing::Test {
 protected:
  ModelFileTest() {
    std::ifstream in(TESSERA_TEST_DATA "/tiny/tiny-llama.gguf", std::ios::binary);
    content_.assign(std::istreambuf_iterator<char>(in), {});
    options_.path = folder_.write("model.gguf", std::as_bytes(std::span(content_)));
    options_.context.n_ctx = 96;
    options_.context.n_ubatch = 16;
    options_.context.n_seq_max = 2;
    options_.n_threads = 2;
  }

  void truncate() const { fs::resize_file(options_.path, 4096); }
  // Into the same file: the engine has it open.
  void restore() const { std::ofstream(options_.path, std::ios::binary | std::ios::in) << content_; }

  TempFolder folder_;
  std::string content_;
  ModelOptions options_;
};

std::vector<BatchToken> tokens(int64_t n, int32_t seq = 0) {
  std::vector<BatchToken> batch;
  for (int32_t i = 0; i < n; ++i) {
    batch.push_back({i * 11 % 288, seq, i + 1 == n});
  }
  return batch;
}

std::vector<float> row(const Context& context) {
  const auto logits = context.logits(0);
  return {logits.begin(), logits.end()};
}

TEST_F(ModelFileTest, CutShortAfterLoadingIsAnErrorOfDecoding) {
  auto model = Model::load(options_);
  ASSERT_TRUE(model.ok()) << model.status().message();
  auto context = Context::create(*model, options_.context);
  auto untouched = Context::create(*model, options_.context);
  ASSERT_TRUE(context.ok() && untouched.ok());
  for (Context* c : {context->get(), untouched->get()}) {
    ASSERT_TRUE(c->decode(tokens(40)).ok());
    ASSERT_TRUE(c->fork(0, 1, 40).ok());  // shares a page that its next token must copy
  }
  ASSERT_TRUE((*untouched)->decode(tokens(20, 1)).ok());

  truncate();
  const Status status = (*context)->decode(tokens(20, 1));
  EXPECT_EQ(status.code(), ErrorCode::kIo);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("model.gguf"), HasSubstr("now has 4096")));
  EXPECT_EQ((*context)->length(0), 40);
  EXPECT_EQ((*context)->length(1), 40);
  EXPECT_EQ((*context)->n_outputs(), 0);
  EXPECT_EQ((*model)->metadata_text("general.architecture").value(), "llama");
  EXPECT_FALSE((*model)->tokenizer().encode("hello").empty());

  restore();
  ASSERT_TRUE((*context)->decode(tokens(20, 1)).ok());
  EXPECT_EQ(row(**context), row(**untouched));
}

TEST_F(ModelFileTest, CutShortWhileLoadingIsAnErrorOfLoading) {
  int n_calls = 0;
  const auto model = Model::load(options_, {}, [&](double) {
    if (n_calls++ == 0) {
      truncate();
    }
    return true;
  });
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.status().code(), ErrorCode::kIo);
  EXPECT_THAT(model.status().message(), AllOf(HasSubstr("model.gguf"), HasSubstr("now has 4096")));
  EXPECT_GE(n_calls, 1);
}

TEST_F(ModelFileTest, WrittenToWhileLoadingIsAnErrorOfLoading) {
  bool written = false;
  const auto model = Model::load(options_, {}, [&](double) {
    if (!written) {
      written = true;
      restore();
      fs::last_write_time(options_.path, fs::last_write_time(options_.path) + std::chrono::seconds(1));
    }
    return true;
  });
  ASSERT_FALSE(model.ok());
  EXPECT_THAT(model.status().message(), HasSubstr("somebody wrote to it"));
}

TEST_F(ModelFileTest, DeletedAfterLoadingChangesNothing) {
  auto model = Model::load(options_);
  ASSERT_TRUE(model.ok()) << model.status().message();
  fs::remove(options_.path);
  auto context = Context::create(*model, options_.context);
  ASSERT_TRUE(context.ok());
  EXPECT_TRUE((*context)->decode(tokens(3)).ok());
}

}  // namespace
}  // namespace tessera
