// .npy files: what NumPy writes is read, what gable writes is read back, and everything else is refused with a message
// that names the file and the value, before memory is allocated.
#include "bench/cli/npy.h"

#include <doctest/doctest.h>
#include <gable/error.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>

using namespace gable;
using namespace gable::bench;
namespace fs = std::filesystem;

namespace {

/// A folder that is removed after the test.
struct Folder {
  fs::path path = fs::temp_directory_path() / ("gable_npy_test_" + std::to_string(::getpid()));
  Folder() { fs::create_directories(path); }
  ~Folder() { fs::remove_all(path); }
  std::string file(const std::string& name) const { return (path / name).string(); }
  std::size_t count() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(path), fs::directory_iterator()));
  }
};

std::string npy(const std::string& header, std::size_t data_bytes, char major = 1) {
  std::string text("\x93NUMPY", 6);
  text += major;
  text += '\0';
  const int length_bytes = major == 1 ? 2 : 4;
  for (int i = 0; i < length_bytes; ++i) text += static_cast<char>(header.size() >> (8 * i) & 0xff);
  return text + header + std::string(data_bytes, 'x');
}

std::string dict(const std::string& descr, const std::string& order, const std::string& shape) {
  return "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }   \n";
}

/// The error message for a file of this content.
std::string error_of(const std::string& content) {
  const Folder folder;
  std::ofstream(folder.file("x.npy"), std::ios::binary) << content;
  try {
    NpyReader reader(folder.file("x.npy"));
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::invalid_argument);
    CHECK(std::string(error.what()).find("x.npy") != std::string::npos);
    return error.what();
  }
  return "no error";
}

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a written file reads back, with NumPy's alignment") {
  const Folder folder;
  std::vector<float> data(2 * 3 * 5 * 7);
  std::iota(data.begin(), data.end(), -3.5F);
  write_npy(folder.file("y.npy"), DType::f32, {2, 3, 5, 7}, data.data());
  NpyReader reader(folder.file("y.npy"));
  CHECK(reader.dtype() == DType::f32);
  CHECK(reader.shape() == NpyShape{2, 3, 5, 7});
  REQUIRE(reader.bytes() == data.size() * 4);
  std::vector<float> back(data.size());
  reader.read(back.data());
  CHECK(back == data);
  CHECK((fs::file_size(folder.file("y.npy")) - reader.bytes()) % 64 == 0);

  write_npy(folder.file("h.npy"), DType::f16, {5}, data.data());
  CHECK(NpyReader(folder.file("h.npy")).shape() == NpyShape{5});
  CHECK(NpyReader(folder.file("h.npy")).dtype() == DType::f16);
}

TEST_CASE("every form that NumPy writes is read") {
  CHECK(error_of(npy(dict("<f4", "False", "(2, 3)"), 24)) == "no error");
  CHECK(error_of(npy(dict("<f4", "False", "(2, 3)"), 24, 2)) == "no error");
  CHECK(error_of(npy(dict("<f2", "False", "(2, 3)"), 12, 3)) == "no error");
  CHECK(error_of(npy(dict("<f4", "False", "(6,)"), 24)) == "no error");
  CHECK(error_of(npy(dict("<f4", "False", "()"), 4)) == "no error");
  CHECK(error_of(npy(dict("<f4", "False", "(2L, 3L)"), 24)) == "no error");
  CHECK(error_of(npy("{\"shape\":(2,3),\"descr\":\"<f4\",\"fortran_order\":False}", 24)) == "no error");
}

TEST_CASE("other dtypes and orders are refused with the cure") {
  CHECK(contains(error_of(npy(dict("<f8", "False", "(2,)"), 16)), "save array.astype('<f4')"));
  CHECK(contains(error_of(npy(dict(">f4", "False", "(2,)"), 8)), "big-endian"));
  CHECK(contains(error_of(npy(dict(">f2", "False", "(2,)"), 4)), "save array.astype('<f2')"));
  CHECK(contains(error_of(npy(dict("|O", "False", "(2,)"), 8)), "not supported"));
  CHECK(contains(error_of(npy(dict("<f4", "True", "(2, 3)"), 24)), "numpy.ascontiguousarray"));
  CHECK(contains(error_of(npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}\n", 8)), "structured"));
}

TEST_CASE("a header that lies about sizes is refused") {
  CHECK(contains(error_of(npy(dict("<f4", "False", "(2, 3)"), 23)),
                 "holds 23 bytes of data, but shape (2, 3) of f32 needs 24"));
  CHECK(contains(error_of(npy(dict("<f4", "False", "(2, 3)"), 25)), "holds 25 bytes"));
  CHECK(contains(error_of(npy(dict("<f4", "False", "(1048576, 1048577)"), 8)), "more than 2^40"));
  CHECK(contains(error_of(npy(dict("<f4", "False", "(4611686018427387904, 4)"), 0)), "more than 2^40"));
  CHECK(contains(error_of(npy(dict("<f4", "False", "(99999999999999999999,)"), 0)), "fits 63 bits"));
  CHECK(contains(error_of(npy(dict("<f4", "False", "(-1, 4)"), 0)), "below 1"));
  CHECK(contains(error_of(npy(dict("<f4", "False", "(0, 4)"), 0)), "below 1"));
  std::string long_header = npy(dict("<f4", "False", "(2,)"), 8);
  long_header[8] = '\xff';
  long_header[9] = '\xff';
  CHECK(contains(error_of(long_header), "claims a header of 65535 bytes"));
  std::string huge_header = npy(dict("<f4", "False", "(2,)"), 8, 2);
  huge_header[11] = '\x7f';
  CHECK(contains(error_of(huge_header), "at most 65535"));
}

TEST_CASE("truncation is refused at every byte") {
  const std::string whole = npy(dict("<f4", "False", "(2, 3)"), 24);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    CAPTURE(size);
    CHECK(error_of(whole.substr(0, size)) != "no error");
  }
}

TEST_CASE("a header that is no dictionary of the three keys is refused") {
  const std::string good = "'descr': '<f4', 'fortran_order': False, 'shape': (2,)";
  CHECK(error_of(npy("{" + good + "}\n", 8)) == "no error");
  for (const std::string& header :
       {std::string(), std::string("{}"), "{" + good, good + "}", "{" + good + "} x", "{" + good + ", 'more': 1}",
        "{" + good + ", 'descr': '<f4'}", "{" + good + ",,}", std::string("{'descr': '<f4', 'fortran_order': False}"),
        std::string("{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}"),
        std::string("{'descr': '<f4', 'fortran_order': False, 'shape': (2)}"),
        std::string("{'descr': '<f4', 'fortran_order': False, 'shape': [2]}"),
        std::string("{'descr': '<f4', 'fortran_order': False, 'shape': (2.0,)}"),
        std::string("{'descr': '<f4', 'fortran_order': False, 'shape': (0x2,)}"),
        std::string("{'descr': __import__('os'), 'fortran_order': False, 'shape': (2,)}"),
        std::string("{'descr': '<f4, 'fortran_order': False, 'shape': (2,)}")}) {
    CAPTURE(header);
    CHECK(contains(error_of(npy(header, 8)), "header"));
  }
  std::string deep = "(1";
  for (int i = 0; i < 40; ++i) deep += ",1";
  CHECK(contains(error_of(npy(dict("<f4", "False", deep + ")"), 4)), "at most 32 dimensions"));
}

TEST_CASE("files that are no .npy files are refused") {
  CHECK(contains(error_of(""), "ends after 0 bytes"));
  CHECK(contains(error_of("PK\x03\x04 a zip archive"), "numpy.save"));
  CHECK(contains(error_of(npy(dict("<f4", "False", "(2,)"), 8, 4)), "version 4.0"));
  CHECK_THROWS_WITH_AS(NpyReader("no_such.npy"), ".npy file 'no_such.npy': there is no such file", Error);
  CHECK_THROWS_WITH_AS(NpyReader("/dev/zero"), ".npy file '/dev/zero': is not a regular file", Error);
}

TEST_CASE("a shape other than the expected one is refused with both in the message") {
  const Folder folder;
  const std::vector<float> data(24);
  write_npy(folder.file("x.npy"), DType::f32, {2, 3, 4}, data.data());
  const NpyReader reader(folder.file("x.npy"));
  CHECK_NOTHROW(reader.require_shape("x", {2, 3, 4}));
  CHECK_THROWS_AS(reader.require_shape("x", {2, 4, 3}), Error);
  try {
    reader.require_shape("the bias", {24});
  } catch (const Error& error) {
    CHECK(contains(error.what(), "shape (2, 3, 4) (3 dimensions instead of 1), but the bias must be (24,)"));
  }
}

TEST_CASE("a failed write leaves nothing behind and the old file as it was") {
  const Folder folder;
  const std::vector<float> data(6);
  CHECK_THROWS_AS(write_npy(folder.file("no_folder/y.npy"), DType::f32, {6}, data.data()), Error);
  CHECK_THROWS_AS(write_npy(folder.file("y.npy"), DType::bf16, {6}, data.data()), Error);
  CHECK_THROWS_AS(write_npy("/dev/null", DType::f32, {6}, data.data()), Error);
  CHECK(folder.count() == 0);
  write_npy(folder.file("y.npy"), DType::f32, {6}, data.data());
  write_npy(folder.file("y.npy"), DType::f32, {2}, data.data());
  CHECK(NpyReader(folder.file("y.npy")).shape() == NpyShape{2});
  CHECK(folder.count() == 1);
}
