// Where libraries are looked for, on a machine that has none of them.
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>

#include "kernels/cuda/library/cublaslt.h"
#include "kernels/cuda/library/open_library.h"

namespace pelton::kernels::cuda {
namespace {

namespace fs = std::filesystem;

class LibraryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    root_ = fs::path(::testing::TempDir()) / (std::string("pelton_library_") + info->name());
    fs::remove_all(root_);
  }
  void TearDown() override { fs::remove_all(root_); }

  fs::path root_;
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

}  // namespace
}  // namespace pelton::kernels::cuda
