// fuzz/rows_fuzz.cpp: any bytes as a data file must give rows or a danlu::Error, never a crash;
// every row gets a meaning or a reason, and a row read twice the same one. The first byte picks the
// file type. (Parquet is read by DuckDB and is no target here.)
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "data/formats/row_format.h"
#include "data/readers/row_json.h"
#include "data/readers/row_reader.h"

namespace {

namespace fs = std::filesystem;
using namespace danlu::data;

const fs::path& folder() {
  static const fs::path kFolder = [] {
    danlu::log::set_level(danlu::log::Level::kOff);
    const fs::path base = fs::exists("/dev/shm") ? "/dev/shm" : fs::temp_directory_path();
    const fs::path path = base / ("danlu-rows-fuzz-" + std::to_string(::getpid()));
    fs::create_directories(path);
    std::atexit([] {
      std::error_code ignored;
      fs::remove_all(folder(), ignored);
    });
    return path;
  }();
  return kFolder;
}

/// Which member of Row or RowProblem it is, and what a problem says.
std::string meaning(const RowResult& result) {
  if (const auto* problem = std::get_if<RowProblem>(&result)) {
    if (problem->reason.empty()) std::abort();
    return problem->reason + ": " + problem->detail;
  }
  return std::to_string(std::get<Row>(result).index());
}

void read_rows(const fs::path& path) {
  const Dataset dataset = resolve_dataset(path.string());
  RowReader reader(dataset);
  std::vector<RawRow> rows;
  while (reader.next_block(&rows)) {
  }
  DetectionRows first;
  std::vector<danlu::Json> values;
  for (const RawRow& row : rows) {
    values.push_back(row.is_json ? parse_row(dataset, row) : danlu::Json());
    if (first.wants_more()) first.add(values.back(), row.text.size());
  }
  const bool is_text = dataset.files[0].type == FileType::kText;
  FormatOptions of_any_kind;
  of_any_kind.kind.reset();
  const auto handler = make_row_handler(of_any_kind, first.rows(), is_text);
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto read = [&] {
      return is_text ? handler->read_text(rows[i].text) : handler->read(values[i]);
    };
    if (meaning(read()) != meaning(read())) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  static constexpr const char* kNames[] = {"a.json", "a.jsonl", "a.csv", "a.tsv", "a.txt"};
  const size_t kind = data[0] % std::size(kNames);
  const fs::path path = folder() / kNames[kind];
  {
    std::ofstream out(path, std::ios::binary);
    out.write(reinterpret_cast<const char*>(data) + 1, static_cast<std::streamsize>(size - 1));
  }
  try {
    read_rows(path);
  } catch (const danlu::InternalError&) {
    std::abort();
  } catch (const danlu::Error&) {
  }
  return 0;
}
