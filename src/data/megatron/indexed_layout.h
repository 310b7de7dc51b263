// data/megatron/indexed_layout.h: byte positions in a Megatron .idx header; shared by reader and
// writer.
#pragma once
#include <cstdint>
#include <string_view>

namespace danlu::data {

inline constexpr std::string_view kIndexMagic{"MMIDIDX\0\0", 9};
inline constexpr uint64_t kIndexVersion = 1;
inline constexpr uint64_t kIndexVersionAt = 9;     ///< u64
inline constexpr uint64_t kIndexTypeAt = 17;       ///< u8
inline constexpr uint64_t kIndexSequencesAt = 18;  ///< u64
inline constexpr uint64_t kIndexDocumentsAt = 26;  ///< u64
inline constexpr uint64_t kIndexHeaderBytes = 34;

}  // namespace danlu::data
