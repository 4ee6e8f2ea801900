// Suites from data: the lists in the repository, a user's own, what a bad one says, and the totals of networks.
#include "bench/workloads/networks.h"

#include <doctest/doctest.h>
#include <gable/error.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "bench/record/totals.h"
#include "bench/report/totals.h"
#include "bench/workloads/selection.h"
#include "tests/tools/folder.h"

using namespace gable;
using namespace gable::bench;
namespace fs = std::filesystem;

namespace {

struct Folder : test::Folder {
  Folder() : test::Folder("networks_test") {}
  void write(const std::string& name, const std::string& text) const { test::write_text(file(name), text); }
};

std::vector<std::string> names_of(const std::vector<NetworkList>& lists) {
  std::vector<std::string> names;
  for (const NetworkList& list : lists) names.push_back(list.suite);
  return names;
}

Selection selected(const std::string& suite, const std::vector<std::string>& dtypes = {}) {
  SelectionOptions options;
  options.suite = suite;
  options.dtypes = dtypes;
  return select(options, false);
}

std::int64_t convolutions(const std::vector<Case>& cases) {
  std::int64_t sum = 0;
  for (const Case& one : cases) sum += one.count.value();
  return sum;
}

Row row_of(const std::string& name, std::int64_t count, const std::string& device, double seconds) {
  Row row;
  row.identity = {.suite = "net", .name = name, .op = "conv2d", .dtype = "f32", .count = count};
  row.place.device = device;
  row.time.seconds = seconds;
  row.work.value = 100;
  return row;
}

}  // namespace

TEST_CASE("the lists of the repository hold every convolution of their networks") {
  const std::map<std::string, std::int64_t> known{
      {"densenet121", 120}, {"mobilenetv2_100", 52}, {"resnet18", 20}, {"networks/resnet50", 53}, {"vgg16", 15}};
  for (const auto& [suite, count] : known) {
    CAPTURE(suite);
    const Selection selection = selected(suite, {"f32"});
    CHECK(convolutions(selection.cases) == count);
    CHECK(selection.refused.empty());
  }
}

TEST_CASE("every layer of every list is a valid convolution with bias and relu, in NHWC and each dtype") {
  const Selection selection = selected("networks");
  CHECK(selection.refused.empty());
  CHECK(selection.repeated.empty());
  std::map<std::string, int> dtypes;
  for (const Case& one : selection.cases) {
    CAPTURE(one.suite);
    CAPTURE(one.name);
    CHECK_NOTHROW(validate(one.op));
    const Conv2d& conv = std::get<Conv2d>(one.op);
    CHECK(conv.layout == Layout::nhwc);
    CHECK(conv.epilogue.bias);
    CHECK(conv.epilogue.activation == Activation::relu);
    ++dtypes[std::string(to_string(conv.dtype))];
  }
  CHECK(dtypes["f32"] > 300);
  CHECK(dtypes["f32"] == dtypes["bf16"]);
  CHECK(dtypes["f32"] == dtypes["f16"]);
}

TEST_CASE("a capped batch keeps layers that became equal, since the totals need them") {
  SelectionOptions options;
  options.suite = "networks";
  options.dtypes = {"f32"};
  const std::size_t all = select(options, false).cases.size();
  options.max_batch = 1;
  CHECK(select(options, false).cases.size() == all);
}

TEST_CASE("a file added to a folder is a suite; the first folder's file of a name is taken") {
  const Folder folder;
  folder.write("mine.txt", "mb1ic3ih8oc4kh3n\"mine:1*2\"\n");
  folder.write("vgg16.txt", "mb1ic3ih8oc4kh3\n");
  folder.write("notes.md", "no list\n");
  std::vector<fs::path> folders = network_folders();
  folders.insert(folders.begin(), {"/does/not/exist", folder.path()});
  const std::vector<NetworkList> all = network_lists(folders);
  const std::vector<NetworkList> mine = lists_of_suite("mine", all);
  REQUIRE(mine.size() == 1);
  CHECK(mine.front().file == folder.path() / "mine.txt");
  CHECK(lists_of_suite("networks/mine", all).size() == 1);
  REQUIRE(lists_of_suite("vgg16", all).size() == 1);
  CHECK(lists_of_suite("vgg16", all).front().file == folder.path() / "vgg16.txt");
  CHECK(lists_of_suite("networks", all).size() == all.size());
  CHECK(lists_of_suite("notes", all).empty());
}

TEST_CASE("a fixed suite keeps its name; the list of that name is a network of the folder") {
  const std::vector<std::string> names = names_of(network_lists(network_folders()));
  CHECK(std::count(names.begin(), names.end(), "resnet50") == 0);
  CHECK(std::count(names.begin(), names.end(), "networks/resnet50") == 1);
  CHECK(selected("resnet50", {"f32"}).cases.front().name == "conv1");
  CHECK_FALSE(selected("resnet50", {"f32"}).cases.front().count);
  CHECK(selected("networks/resnet50", {"f32"}).cases.front().name == "resnet50:1");
  CHECK(selected("networks/resnet50", {"f32"}).cases.front().suite == "networks/resnet50");
}

TEST_CASE("an unknown suite names the known ones, lists among them, and the folders") {
  std::string message;
  try {
    selected("vgg");
  } catch (const Error& error) {
    message = error.what();
  }
  for (const char* part : {"unknown suite 'vgg'", "study", "networks", "densenet121", "networks/resnet50",
                           "share/gable/networks", "GABLE_NETWORKS"}) {
    CAPTURE(part);
    CHECK(message.find(part) != std::string::npos);
  }
}

TEST_CASE("a total has each layer's time as often as the layer occurs") {
  const std::vector<Row> rows{row_of("a", 1, "cpu", 1), row_of("a", 1, "onednn", 2), row_of("b", 3, "cpu", 10),
                              row_of("b", 3, "onednn", 5), row_of("c", 2, "cpu", 1)};
  const std::vector<Refusal> refused{{.suite = "net", .name = "c", .dtype = "f32", .device = "onednn"},
                                     {.suite = "net", .name = "line 8", .problem = "--dir=FWD_B", .dtype = ""},
                                     {.suite = "net", .name = "line 9", .problem = "mb0ic3", .dtype = ""},
                                     {.suite = "net", .name = "line 9", .problem = "mb1ic3zz", .dtype = ""}};
  const std::vector<NetworkTotal> totals = network_totals(rows, refused);
  REQUIRE(totals.size() == 2);
  CHECK(totals[0].device == "cpu");
  CHECK(totals[0].seconds == doctest::Approx(1 + 30 + 2));
  CHECK(totals[0].flop == doctest::Approx(600));
  CHECK(totals[0].convolutions == 6);
  CHECK(totals[0].layers == 3);
  CHECK(totals[0].layers_of_list == 5);  // options are no layers
  CHECK(totals[1].device == "onednn");
  CHECK(totals[1].seconds == doctest::Approx(2 + 15));
  CHECK(totals[1].layers == 2);
  CHECK_FALSE(totals[1].is_whole());
}

TEST_CASE("rows without a count have no total") {
  Row row = row_of("a", 1, "cpu", 1);
  row.identity.count.reset();
  CHECK(network_totals({row}, {}).empty());
}

TEST_CASE("the totals' lines compare devices with a vendor's library where both ran the same layers") {
  report::Studies studies;
  for (const Row& row : {row_of("a", 1, "cpu", 1), row_of("b", 3, "cpu", 10), row_of("a", 1, "onednn", 2),
                         row_of("b", 3, "onednn", 5)}) {
    report::Measurement m;
    static_cast<Row&>(m) = row;
    m.series = row.place.device;
    studies.measurements.push_back(m);
  }
  CHECK(report::totals_table(studies).find("0.55x onednn; layers: geo 1.00, 1 of 2 below 1, worst 0.50") !=
        std::string::npos);
  CHECK(report::totals_table(studies).find("n/m layers") == std::string::npos);
  studies.refused.push_back({});
  static_cast<Refusal&>(studies.refused.back()) = {.suite = "net", .name = "line 9", .problem = "mb1ic3zz"};
  const std::string unread = report::totals_table(studies);
  CHECK(unread.find("n/m layers: the others did not run on that device, or their lines can't be read") !=
        std::string::npos);
  CHECK(unread.find("2/3") != std::string::npos);
  CHECK(unread.find("0.55x onednn") != std::string::npos);
  studies.refused.clear();
  studies.measurements.pop_back();
  const std::string partial = report::totals_table(studies);
  CHECK(partial.find("1/2") != std::string::npos);
  CHECK(partial.find("  onednn; layers: geo 2.00, 0 of 1 below 1, worst 2.00") != std::string::npos);
}
