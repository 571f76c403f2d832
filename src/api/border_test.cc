#include "api/border.h"

#include <stdexcept>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera::api {
namespace {

using testing::HasSubstr;

TEST(Guarded, NothingIsThrownAcrossTheBorder) {
  EXPECT_EQ(guarded([] { return Status(); }), TSR_OK);
  EXPECT_EQ(guarded([] { return Status(ErrorCode::kCacheFull, "no page is left"); }), TSR_CACHE_FULL);
  EXPECT_STREQ(tsr_last_error(), "no page is left");
  EXPECT_EQ(guarded([]() -> Status { throw std::bad_alloc(); }), TSR_OUT_OF_MEMORY);
  EXPECT_THAT(tsr_last_error(), HasSubstr("memory"));
  EXPECT_EQ(guarded([]() -> Status { throw std::length_error("vector"); }), TSR_OUT_OF_MEMORY);
  EXPECT_EQ(guarded([]() -> Status { throw std::runtime_error("a bug"); }), TSR_INTERNAL);
  EXPECT_STREQ(tsr_last_error(), "a bug");
  EXPECT_EQ(guarded([]() -> Status { throw 7; }), TSR_INTERNAL);
}

TEST(MemberNames, FlagsOfTheEngineAreNamedAsMembers) {
  EXPECT_EQ(with_member_names("the context holds 8; raise --ctx-size"), "the context holds 8; raise n_ctx");
  EXPECT_EQ(with_member_names("Raise --device-memory, or add a --device"), "Raise device_memory, or add a devices");
  EXPECT_EQ(with_member_names("(--cuts) --threads: --unknown"), "(n_cuts) n_threads: --unknown");
  // What may be a user's text stays.
  EXPECT_EQ(with_member_names("cannot open '/m/a--threads.gguf': --cuts/x, a--cuts"),
            "cannot open '/m/a--threads.gguf': --cuts/x, a--cuts");
  EXPECT_EQ(with_member_names(" two  blanks "), " two  blanks ");
}

struct Known {
  size_t size;
  int64_t a;
  int64_t b;
};
struct Later {
  Known known;
  int64_t c;
};

TEST(Structs, ALaterCallersUnknownMembersMustBeZero) {
  Later later;
  later.c = 99;
  ASSERT_TRUE(init_struct(&later.known, sizeof later, Known{0, 1, 2}, "Known").ok());
  EXPECT_EQ(later.known.size, sizeof later);
  EXPECT_EQ(later.known.b, 2);
  EXPECT_EQ(later.c, 0);
  later.known.a = 5;
  EXPECT_EQ(read_struct(&later.known, "Known")->a, 5);
  later.c = 1;
  EXPECT_EQ(read_struct(&later.known, "Known").status().code(), ErrorCode::kUnsupported);
}

TEST(Structs, SizesThatNobodyInitialisedAreRefused) {
  Known known = {};
  for (const size_t size : {size_t{0}, sizeof known - 1, size_t{5000}, SIZE_MAX}) {
    known.size = size;
    EXPECT_EQ(read_struct(&known, "Known").status().code(), ErrorCode::kInvalidArgument) << size;
    EXPECT_EQ(init_struct(&known, size, Known{}, "Known").code(), ErrorCode::kInvalidArgument) << size;
  }
}

TEST(Structs, AnEarlierCallerGetsWhatItHasRoomFor) {
  Known known = {7, 7, 7};
  ASSERT_TRUE(write_struct(&known, offsetof(Known, b), Known{0, 1, 2}, "Known").ok());
  EXPECT_EQ(known.size, offsetof(Known, b));
  EXPECT_EQ(known.a, 1);
  EXPECT_EQ(known.b, 7);
}

}  // namespace
}  // namespace tessera::api
