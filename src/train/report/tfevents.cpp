#include "train/report/tfevents.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/error.h"
#include "base/file.h"

namespace danlu::train {
namespace {

// event.proto and summary.proto field numbers.
constexpr int kEventWallTime = 1, kEventStep = 2, kEventFileVersion = 3, kEventSummary = 5,
              kEventSessionLog = 7;
constexpr int kSummaryValue = 1, kValueTag = 1, kValueSimple = 2;
constexpr int kSessionStatus = 1;
constexpr uint64_t kSessionStart = 1;
enum WireType { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

void put_key(std::string& out, int field, WireType type) {
  put_varint(out, static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(type));
}

template <typename T>
void put_raw(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void put_bytes(std::string& out, int field, std::string_view bytes) {
  put_key(out, field, kBytes);
  put_varint(out, bytes.size());
  out += bytes;
}

std::string event_head(int64_t step) {
  std::string event;
  put_key(event, kEventWallTime, kFixed64);
  put_raw(event, unix_now_s());
  if (step != 0) {
    put_key(event, kEventStep, kVarint);
    put_varint(event, static_cast<uint64_t>(step));
  }
  return event;
}

/// CRCs of data that contain CRCs are weak; the framing therefore turns and shifts them.
uint32_t masked_crc(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static const std::array<uint32_t, 256> kTable = [] {
    std::array<uint32_t, 256> table;
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ (value & 1 ? 0x82f63b78u : 0);
      table[i] = value;
    }
    return table;
  }();
  uint32_t crc = ~0u;
  for (const char c : bytes) crc = kTable[(crc ^ static_cast<unsigned char>(c)) & 0xff] ^ crc >> 8;
  return ~crc;
}

TfEventsWriter::TfEventsWriter(const fs::path& directory, int64_t start_step) {
  static std::atomic<int> counter{0};
  require_writable_directory(directory);
  char host[256] = "localhost";
  ::gethostname(host, sizeof host - 1);
  path_ = directory / fmt::format("events.out.tfevents.{:010}.{}.{}.{}",
                                  static_cast<int64_t>(unix_now_s()), host, ::getpid(),
                                  counter.fetch_add(1));
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd_ < 0) throw IoError(tr("{}: cannot create: {}", path_.string(), std::strerror(errno)));
  std::string version = event_head(0);
  put_bytes(version, kEventFileVersion, "brain.Event:2");
  append_record(version);
  if (start_step > 0) {
    std::string session;
    put_key(session, kSessionStatus, kVarint);
    put_varint(session, kSessionStart);
    std::string event = event_head(start_step + 1);
    put_bytes(event, kEventSessionLog, session);
    append_record(event);
  }
}

TfEventsWriter::~TfEventsWriter() { ::close(fd_); }

void TfEventsWriter::add_scalars(int64_t step,
                                 const std::vector<std::pair<std::string, double>>& scalars) {
  std::string summary;
  for (const auto& [tag, number] : scalars) {
    std::string value;
    put_bytes(value, kValueTag, tag);
    put_key(value, kValueSimple, kFixed32);
    put_raw(value, static_cast<float>(number));
    put_bytes(summary, kSummaryValue, value);
  }
  std::string event = event_head(step);
  put_bytes(event, kEventSummary, summary);
  append_record(event);
}

void TfEventsWriter::append_record(std::string_view payload) {
  std::string record;
  put_raw(record, static_cast<uint64_t>(payload.size()));
  put_raw(record, masked_crc(record));
  record += payload;
  put_raw(record, masked_crc(payload));
  write_all_or_throw(
      fd_, record, path_,
      tr("free some space; where a checkpoint was saved the same command goes on from it"));
}

}  // namespace danlu::train
