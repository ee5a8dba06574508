// Where libraries are looked for, on a machine that has none of them; and, with a library that
// computes on the host (testing/fake_cublaslt.cc), what cuBLASLt is asked for.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "kernels/cuda/library/cublaslt.h"
#include "kernels/cuda/library/open_library.h"
#include "tests/support/temp_dir.h"

namespace pelton::kernels::cuda {
namespace {

namespace fs = std::filesystem;

class LibraryTest : public ::testing::Test {
 protected:
  const pelton::testing::TempDir dir_;
  const fs::path root_ = dir_.path() / "root";  // not there yet
};

TEST_F(LibraryTest, PackagesAreListedInOneOrder) {
  for (const char* python : {"python3.12", "python3.11", "python2.7"}) {
    for (const char* package : {"cu13", "cublas"}) {
      fs::create_directories(root_ / "lib" / python / "site-packages" / "nvidia" / package / "lib");
    }
  }
  fs::create_directories(root_ / "lib" / "python3.11" / "dist-packages" / "nvidia" / "cudnn");
  std::ofstream(root_ / "lib" / "python3.11" / "site-packages" / "nvidia" / "a_file") << "x";
  const fs::path lib = root_ / "lib";
  const std::vector<std::string> expected = {
      (lib / "python3.11/site-packages/nvidia/cu13/lib").string(),
      (lib / "python3.11/site-packages/nvidia/cublas/lib").string(),
      (lib / "python3.11/dist-packages/nvidia/cudnn/lib").string(),
      (lib / "python3.12/site-packages/nvidia/cu13/lib").string(),
      (lib / "python3.12/site-packages/nvidia/cublas/lib").string()};
  const std::array<std::string, 2> prefixes = {(root_ / "absent").string(), root_.string()};
  EXPECT_EQ(python_library_folders(prefixes), expected);
}

TEST_F(LibraryTest, WhatIsNotALibraryIsPassedOver) {
  fs::create_directories(root_);
  std::ofstream(root_ / "libpelton_absent.so.1") << "no library";
  const std::array<std::string_view, 2> names = {"libpelton_absent.so.1", "libpelton_absent.so.2"};
  EXPECT_EQ(open_library(names, {.folders = {root_.string()}, .python_prefixes = {root_.string()}}),
            nullptr);
}

TEST_F(LibraryTest, AFolderThatWasNamedIsSearched) {
  // The C library under another name, so that only this folder has it.
  fs::path libc;
  for (const char* folder : {"/lib/x86_64-linux-gnu", "/lib64", "/usr/lib", "/lib"}) {
    if (libc.empty() && fs::exists(fs::path(folder) / "libm.so.6")) {
      libc = fs::path(folder) / "libm.so.6";
    }
  }
  if (libc.empty()) GTEST_SKIP() << "no libm.so.6 where it usually lies";
  fs::create_directories(root_);
  fs::copy_file(fs::canonical(libc), root_ / "libpelton_named.so.1");
  const std::array<std::string_view, 1> names = {"libpelton_named.so.1"};
  EXPECT_EQ(open_library(names, {}), nullptr);
  EXPECT_NE(open_library(names, {.folders = {root_.string()}}), nullptr);
}

TEST_F(LibraryTest, CublasLtOpensOrSaysWhyNot) {
  std::string why;
  const auto library = CublasLt::open({}, &why);
  EXPECT_EQ(library == nullptr, !why.empty()) << why;
}

// The order is: folders that were named, the system's own, Python packages.
TEST_F(LibraryTest, NamedFoldersComeFirstAndPythonPackagesLast) {
  const fs::path named = root_ / "named";
  const fs::path packages = root_ / "venv/lib/python3.11/site-packages/nvidia/cublas/lib";
  fs::create_directories(named);
  fs::create_directories(packages);
  fs::copy_file(PELTON_FAKE_CUBLASLT, packages / "libcublasLt.so.13");
  std::string why;
  const LibrarySearch python = {.folders = {named.string()},
                                .python_prefixes = {(root_ / "venv").string()}};
  auto library = CublasLt::open(python, &why);
  const std::array<std::string_view, 1> names = {"libcublasLt.so.13"};
  if (open_library(names, {.folders = {}, .python_prefixes = {}}) == nullptr) {
    ASSERT_NE(library, nullptr) << why;
    EXPECT_EQ(fs::path(library->path()), packages / "libcublasLt.so.13");
  } else if (library != nullptr) {
    EXPECT_NE(fs::path(library->path()), packages / "libcublasLt.so.13");
  }
  fs::copy_file(PELTON_FAKE_CUBLASLT, named / "libcublasLt.so.12");
  library = CublasLt::open(python, &why);
  ASSERT_NE(library, nullptr) << why;
  EXPECT_EQ(fs::path(library->path()), named / "libcublasLt.so.12");
}

TEST_F(LibraryTest, ALibraryWithoutTheEntryPointsIsRefusedInOneLine) {
  fs::path libm;
  for (const char* folder : {"/lib/x86_64-linux-gnu", "/lib64", "/usr/lib", "/lib"}) {
    if (libm.empty() && fs::exists(fs::path(folder) / "libm.so.6")) {
      libm = fs::path(folder) / "libm.so.6";
    }
  }
  if (libm.empty()) GTEST_SKIP() << "no libm.so.6 where it usually lies";
  fs::create_directories(root_);
  fs::copy_file(fs::canonical(libm), root_ / "libcublasLt.so.13");
  std::string why;
  EXPECT_EQ(CublasLt::open({.folders = {root_.string()}, .python_prefixes = {}}, &why), nullptr);
  EXPECT_EQ(why, "libcublasLt lacks an entry point");
}

class FakeCublasLtTest : public LibraryTest {
 protected:
  void SetUp() override {
    LibraryTest::SetUp();
    fs::create_directories(root_);
    const fs::path copy = root_ / "libcublasLt.so.13";
    fs::copy_file(PELTON_FAKE_CUBLASLT, copy);
    std::string why;
    library_ = CublasLt::open({.folders = {root_.string()}, .python_prefixes = {}}, &why);
    ASSERT_NE(library_, nullptr) << why;
    void* handle = dlopen(copy.c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(handle, nullptr);
    asked_ = reinterpret_cast<int (*)()>(dlsym(handle, "fake_algorithms_asked_for"));
    ASSERT_NE(asked_, nullptr);
  }

  std::unique_ptr<CublasLt> library_;
  int (*asked_)() = nullptr;  // algorithms
};

uint16_t bf16_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<uint16_t>(bits >> 16);
}

// Small whole numbers, so that every sum is exact.
TEST_F(FakeCublasLtTest, ProductsAreOfRowsWithRows) {
  constexpr int64_t kRows = 5, kOutputs = 3, kInner = 16, kStride = 24, kOutStride = 8;
  std::vector<uint16_t> x(kRows * kStride, bf16_of(100.0f)), w(kOutputs * kInner);
  const auto x_at = [](int64_t i, int64_t k) {
    return static_cast<float>((i * 7 + k * 3) % 5 - 2);
  };
  const auto w_at = [](int64_t j, int64_t k) { return static_cast<float>((j * 5 + k) % 7 - 3); };
  for (int64_t k = 0; k < kInner; ++k) {
    for (int64_t i = 0; i < kRows; ++i)
      x[static_cast<size_t>(i * kStride + k)] = bf16_of(x_at(i, k));
    for (int64_t j = 0; j < kOutputs; ++j)
      w[static_cast<size_t>(j * kInner + k)] = bf16_of(w_at(j, k));
  }
  for (const bool accumulate : {false, true}) {
    std::vector<float> out(kRows * kOutStride, 1000.0f);
    const CublasLtProblem problem = {.m = kRows,
                                     .n = kOutputs,
                                     .k = kInner,
                                     .x_stride = kStride,
                                     .out_stride = kOutStride,
                                     .out_f32 = true,
                                     .accumulate = accumulate};
    ASSERT_EQ(
        library_->product(problem, {.x = x.data(), .weight = w.data(), .out = out.data()}, nullptr),
        "");
    for (int64_t i = 0; i < kRows; ++i) {
      for (int64_t j = 0; j < kOutStride; ++j) {
        float want = j < kOutputs && !accumulate ? 0.0f : 1000.0f;
        for (int64_t k = 0; j < kOutputs && k < kInner; ++k) want += x_at(i, k) * w_at(j, k);
        EXPECT_EQ(out[static_cast<size_t>(i * kOutStride + j)], want) << i << " " << j;
      }
    }
  }
}

TEST_F(FakeCublasLtTest, ScalesOfRowsBelongToTheirOperand) {
  constexpr uint8_t kOne = 0x38, kTwo = 0x40;
  const std::vector<uint8_t> x = [&] {
    std::vector<uint8_t> codes(2 * 16, kOne);
    std::fill(codes.begin() + 16, codes.end(), kTwo);
    return codes;
  }();
  const std::vector<uint8_t> w(3 * 16, kOne);
  const std::vector<float> x_scale = {1.0f, 0.5f}, w_scale = {1.0f, 2.0f, 4.0f};
  std::vector<float> out(2 * 3);
  CublasLtProblem problem = {
      .m = 2, .n = 3, .k = 16, .type = CublasLtType::kFp8, .out_f32 = true, .row_scales = true};
  const CublasLtOperands operands = {.x = x.data(),
                                     .weight = w.data(),
                                     .out = out.data(),
                                     .x_scale = x_scale.data(),
                                     .w_scale = w_scale.data()};
  ASSERT_EQ(library_->product(problem, operands, nullptr), "");
  EXPECT_EQ(out, (std::vector<float>{16, 32, 64, 16, 32, 64}));
  problem.row_scales = false;
  ASSERT_EQ(library_->product(problem, operands, nullptr), "");
  EXPECT_EQ(out, (std::vector<float>{16, 16, 16, 32, 32, 32}));
}

TEST_F(FakeCublasLtTest, AnAlgorithmServesEveryNumberOfRowsOfItsSize) {
  const std::vector<uint16_t> x(1100 * 16), w(16 * 16);
  std::vector<uint16_t> out(1100 * 16);
  const CublasLtOperands operands = {.x = x.data(), .weight = w.data(), .out = out.data()};
  const int before = asked_();
  for (int64_t m = 1025; m <= 1100; ++m) {
    ASSERT_EQ(library_->product({.m = m, .n = 16, .k = 16}, operands, nullptr), "") << m;
  }
  EXPECT_EQ(asked_(), before + 1);
  ASSERT_EQ(library_->product({.m = 33, .n = 16, .k = 16}, operands, nullptr), "");
  EXPECT_EQ(asked_(), before + 2);
  EXPECT_TRUE(library_->prepare({.m = 40, .n = 16, .k = 16}));
  EXPECT_EQ(asked_(), before + 2);
}

TEST_F(FakeCublasLtTest, WhatTheLibraryHasNothingForIsSaidBeforehand) {
  const CublasLtProblem problem = {.m = 64, .n = 16, .k = 24};
  EXPECT_FALSE(library_->prepare(problem));
  EXPECT_EQ(library_->product(problem, {}, nullptr),
            "cuBLASLt has no algorithm for m 64, n 16, k 24, bf16");
}

}  // namespace
}  // namespace pelton::kernels::cuda
