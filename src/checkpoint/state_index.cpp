#include "checkpoint/state_index.h"

#include <fmt/format.h>

#include <map>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/file.h"

namespace danlu::checkpoint {
namespace {

using weights::native::Part;

/// What each file holds of a tensor, by its name.
using Written = std::map<std::string, std::vector<std::pair<size_t, arch::Rect>>>;

Json listed(const std::vector<Part>& parts) {
  Json list = Json::array();
  for (const Part& part : parts) {
    list.push_back(
        {part.name, part.shape, part.rect.row, part.rect.rows, part.rect.col, part.rect.cols});
  }
  return list;
}

std::vector<Part> parts_of(const Json& list) {
  std::vector<Part> parts;
  for (const Json& part : list) {
    parts.push_back({part[0].get<std::string>(),
                     part[1].get<std::vector<int64_t>>(),
                     {part[2].get<int64_t>(), part[3].get<int64_t>(), part[4].get<int64_t>(),
                      part[5].get<int64_t>()}});
  }
  return parts;
}

bool meet(const arch::Rect& a, const arch::Rect& b) {
  return a.row < b.row + b.rows && b.row < a.row + a.rows && a.col < b.col + b.cols &&
         b.col < a.col + a.cols;
}

void add_files_with(const std::vector<Part>& held, const Written& written,
                    std::set<size_t>& files) {
  for (const Part& part : held) {
    const auto found = written.find(part.name);
    if (found == written.end()) continue;
    for (const auto& [file, rect] : found->second) {
      if (meet(part.rect, rect)) files.insert(file);
    }
  }
}

}  // namespace

std::string state_file(int64_t rank) { return fmt::format("rank-{}.safetensors", rank); }

std::string listed(const HeldParts& held) {
  return dump_text({{"written", listed(held.written)},
                    {"copies", listed(held.written_by_others)},
                    {"bytes", held.file.bytes},
                    {"xxh3", held.file.xxh3}});
}

std::map<std::string, WrittenFile> files_written(const std::vector<std::string>& listed) {
  std::map<std::string, WrittenFile> files;
  for (size_t rank = 0; rank < listed.size(); ++rank) {
    const Json said = parse_json(listed[rank], fmt::format("rank {}", rank));
    if (said.at("written").empty()) continue;
    files["optim/" + state_file(static_cast<int64_t>(rank))] = {said.at("bytes"), said.at("xxh3")};
  }
  return files;
}

void write_state_index(const fs::path& folder, const std::vector<std::string>& listed,
                       const Holders& holders, bool all_here) {
  std::vector<std::string> files;
  std::vector<std::vector<Part>> of_files;
  std::vector<HeldParts> held;
  Written written;
  for (size_t rank = 0; rank < listed.size(); ++rank) {
    const Json said = parse_json(listed[rank], fmt::format("rank {}", rank));
    held.push_back({parts_of(said.at("written")), {}, parts_of(said.at("copies"))});
    const std::vector<Part>& parts = held.back().written;
    if (parts.empty()) continue;
    for (const Part& part : parts) written[part.name].emplace_back(files.size(), part.rect);
    files.push_back(state_file(static_cast<int64_t>(rank)));
    of_files.push_back(parts);
    if (all_here && !fs::exists(folder / files.back())) {
      throw IoError(tr("{}: rank {} has written it, and it is not here", files.back(), rank),
                    tr("all machines must see one --output_dir"));
    }
  }
  Json index = weights::native::index_of(files, of_files), reads = Json::array();
  if (holders.experts > 1) {  // ranks with the same place on the tensor axis hold other experts
    write_json_file(folder / weights::native::kIndexFile, index);
    return;
  }
  for (int64_t holder = 0; holder < holders.count(); ++holder) {
    std::set<size_t> needed;
    const HeldParts& parts = held[static_cast<size_t>(holders.rank_of(holder))];
    add_files_with(parts.written, written, needed);
    add_files_with(parts.written_by_others, written, needed);
    reads.push_back(needed);
  }
  index["ranks"] = {{"tensor", holders.tensor},
                    {"sharers", holders.sharers},
                    {"pipeline", holders.stages},
                    {"reads", std::move(reads)}};
  write_json_file(folder / weights::native::kIndexFile, index);
}

std::vector<std::vector<std::string>> files_read(const fs::path& checkpoint, const Holders& holders,
                                                 int64_t ranks) {
  std::set<std::string> state;
  const fs::path index = checkpoint / "optim" / weights::native::kIndexFile;
  Json written_by;
  std::vector<std::string> files;
  if (fs::exists(index)) {
    const Json json = read_json_file(index);
    for (const Json& file : json.at("files")) files.push_back("optim/" + file.get<std::string>());
    written_by = json.value("ranks", Json());
    state.insert(files.begin(), files.end());
  }
  // DONE names the state of its own keeper's ranks too.
  std::set<std::string> common;
  const Json done = read_json_file(checkpoint / "DONE");
  for (const auto& [name, size] : done.at("files").items()) {
    if (!state.contains(name)) common.insert(name);
  }
  std::vector<std::vector<std::string>> read_by;
  const bool same = written_by.is_object() && written_by.at("tensor") == holders.tensor &&
                    written_by.at("sharers") == holders.sharers &&
                    written_by.value("pipeline", int64_t{1}) == holders.stages &&
                    holders.stages == 1 &&  // stages may have had other layers
                    holders.experts == 1;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    std::set<std::string> read = common;
    if (same) {
      for (const size_t file : written_by.at("reads").at(holders.same_as(rank)))
        read.insert(files.at(file));
    } else {
      read.insert(state.begin(), state.end());
    }
    read_by.emplace_back(read.begin(), read.end());
  }
  return read_by;
}

}  // namespace danlu::checkpoint
