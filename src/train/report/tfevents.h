// train/report/tfevents.h: scalars in the event files that TensorBoard reads.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"

namespace danlu::train {

/// CRC-32C (Castagnoli) of `bytes`. Source: RFC 3720 appendix B.4.
uint32_t crc32c(std::string_view bytes);

/// Appends records to `<directory>/events.out.tfevents.<seconds>.<host>.<pid>.<n>`. A record is on
/// disk when add_scalars() returns. Errors: IoError. Source: TFRecord framing (length, masked CRC,
/// payload, masked CRC), event.proto, summary.proto.
class TfEventsWriter {
 public:
  /// start_step > 0: tells TensorBoard to forget what an earlier session logged after that step.
  TfEventsWriter(const std::filesystem::path& directory, int64_t start_step = 0);
  ~TfEventsWriter();
  TfEventsWriter(const TfEventsWriter&) = delete;
  TfEventsWriter& operator=(const TfEventsWriter&) = delete;

  void add_scalars(int64_t step, const std::vector<std::pair<std::string, double>>& scalars);
  const std::filesystem::path& path() const { return path_; }

 private:
  void append_record(std::string_view payload);
  std::filesystem::path path_;
  int fd_ = -1;
};

}  // namespace danlu::train
