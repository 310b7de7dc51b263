// weights/torch/zip_format.h: fixed numbers of the zip format (APPNOTE.TXT 4.3, 4.5.3).
#pragma once
#include <cstdint>

namespace danlu::weights::torch_file::zip_format {

inline constexpr uint32_t kLocalSignature = 0x04034b50, kEntrySignature = 0x02014b50,
                          kEndSignature = 0x06054b50, kEnd64Signature = 0x06064b50,
                          kLocator64Signature = 0x07064b50;
/// Bytes of the records before their names and extra fields.
inline constexpr uint64_t kLocalBytes = 30, kEntryBytes = 46, kEndBytes = 22, kEnd64Bytes = 56,
                          kLocator64Bytes = 20;
/// Extra field that holds the values beyond 32 bits.
inline constexpr uint64_t kZip64Field = 1;
/// A 32-bit field of this value: the real one is in the zip64 field.
inline constexpr uint64_t kIn64 = 0xffffffff;

}  // namespace danlu::weights::torch_file::zip_format
