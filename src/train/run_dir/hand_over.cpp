#include "train/run_dir/hand_over.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/progress.h"
#include "checkpoint/checksum.h"
#include "parallel/agree.h"

namespace danlu::train {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kPieceBytes = int64_t{16} << 20;
/// After so many bytes all ranks hear of each other, those too who have no part in it.
constexpr int64_t kBytesBetweenNews = int64_t{1} << 30;

using Groups = std::map<std::vector<int64_t>, std::unique_ptr<parallel::Group>>;

bool takes(const HandOver& what, int64_t rank) {
  return std::find(what.to.begin(), what.to.end(), rank) != what.to.end();
}

/// What the giver's DONE says of the file, and of the checkpoint.
Json description(const fs::path& checkpoint, const std::string& file) {
  const Json done = read_json_file(checkpoint / "DONE");
  const Json digests = done.value("xxh3", Json::object());
  return {{"size", fs::file_size(checkpoint / file)},
          {"xxh3", digests.contains(file) ? digests.at(file).get<std::string>()
                                          : checkpoint::checksum_of(checkpoint / file)},
          {"save", done.value("save", std::string())},
          {"step", done.at("step")},
          {"resumable", done.at("resumable")}};
}

/// Bytes begin … end of the file, from `source` into `copy`, of which a rank has one or none.
void pass_on(const parallel::Group& members, int64_t root, const MappedFile* source,
             AtomicFile* copy, int64_t begin, int64_t end) {
  std::exception_ptr failure;
  for (int64_t at = begin; at < end; at += kPieceBytes) {
    at::Tensor piece = at::empty({std::min(end - at, kPieceBytes)}, at::kByte);
    if (source) std::memcpy(piece.data_ptr(), source->bytes().data() + at, piece.nbytes());
    members.broadcast(piece, root);
    if (source) source->forget();
    if (!copy || failure) continue;
    try {
      copy->write(piece.data_ptr(), piece.nbytes());
    } catch (const IoError&) {
      failure = std::current_exception();  // the others still count on this rank's part
    }
  }
  if (failure) std::rethrow_exception(failure);
}

/// Returns what the giver says of it.
Json copy_one(const fs::path& checkpoint, const HandOver& what, const Ranks& ranks,
              Groups& groups) {
  const bool gives = ranks.rank() == what.from, receives = takes(what, ranks.rank());
  std::vector<int64_t> members = what.to;
  const auto root =
      members.insert(std::lower_bound(members.begin(), members.end(), what.from), what.from);
  const int64_t root_number = root - members.begin();
  if (!groups.contains(members)) groups[members] = ranks.group_of(members);
  const parallel::Group* group = groups[members].get();
  const fs::path path = checkpoint / what.file;
  std::optional<MappedFile> source;
  std::optional<AtomicFile> copy;
  std::string said;
  parallel::together(ranks.all(), [&] {
    if (gives) {
      said = dump_text(description(checkpoint, what.file));
      source.emplace(path);
    }
    if (!receives) return;
    fs::create_directories(path.parent_path());
    copy.emplace(path);
  });
  Json described = parse_json(ranks.from(what.from, said), what.file);
  const int64_t size = described.at("size");
  log::info("{}: rank {} gets {} ({}) of rank {}", checkpoint.string(), fmt::join(what.to, ", "),
            what.file, format_bytes(static_cast<uint64_t>(size)), what.from);
  parallel::together(ranks.all(), [&] {
    if (receives) require_free_space(path, static_cast<uint64_t>(size), what.file);
  });
  for (int64_t begin = 0; begin < size; begin += kBytesBetweenNews) {
    const int64_t end = std::min(size, begin + kBytesBetweenNews);
    parallel::together(ranks.all(), [&] {
      if (group)
        pass_on(*group, root_number, source ? &*source : nullptr, copy ? &*copy : nullptr, begin,
                end);
    });
  }
  parallel::together(ranks.all(), [&] {
    if (copy) copy->commit();
  });
  return described;
}

void add_to_done(const fs::path& checkpoint, const std::map<std::string, Json>& copied) {
  const fs::path path = checkpoint / "DONE";
  Json done = fs::exists(path) ? read_json_file(path) : Json::object();
  for (const auto& [file, described] : copied) {
    done["save"] = described.at("save");
    done["step"] = described.at("step");
    done["resumable"] = described.at("resumable");
    done["files"][file] = described.at("size");
    done["xxh3"][file] = described.at("xxh3");
    sync_path((checkpoint / file).parent_path());
  }
  write_json_file(path, done);
  sync_path(checkpoint);
}

}  // namespace

void hand_over(const std::filesystem::path& checkpoint, const std::vector<HandOver>& files,
               const Ranks& ranks) {
  Groups groups;
  std::map<std::string, Json> copied;
  for (const HandOver& what : files) {
    const Json described = copy_one(checkpoint, what, ranks, groups);
    if (takes(what, ranks.rank())) copied[what.file] = described;
  }
  parallel::together(ranks.all(), [&] {
    if (!copied.empty()) add_to_done(checkpoint, copied);
  });
}

}  // namespace danlu::train
