#include <jerror.h>
#include <jpeglib.h>

#include <csetjmp>
#include <cstdio>

#include "media/stills/plugin/formats.h"

namespace danlu::media {
namespace {

/// A progressive file may hold thousands of scans over all its pixels, each a few bytes long.
constexpr int kMostScans = 500;

/// libjpeg leaves its calls by longjmp: no frame between setjmp and it has anything to destroy.
struct JpegReader {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  jpeg_source_mgr source{};
  jpeg_progress_mgr progress{};
  std::jmp_buf back;
  DecodeStatus status = DecodeStatus::kDone;
  char why[JMSG_LENGTH_MAX] = "";

  ~JpegReader() { jpeg_destroy_decompress(&info); }
};

JpegReader& reader_of(j_common_ptr info) { return *static_cast<JpegReader*>(info->client_data); }

[[noreturn]] void leave(j_common_ptr info) {
  JpegReader& reader = reader_of(info);
  (*info->err->format_message)(info, reader.why);
  if (reader.status == DecodeStatus::kDone) {
    switch (info->err->msg_code) {
      case JERR_BAD_PRECISION:
      case JERR_SOF_UNSUPPORTED:
      case JERR_NOTIMPL:
      case JERR_NOT_COMPILED:
      case JERR_CONVERSION_NOTIMPL:
      case JERR_COMPONENT_COUNT:
        reader.status = DecodeStatus::kUnsupported;
        break;
      case JERR_OUT_OF_MEMORY:
        reader.status = DecodeStatus::kNoMemory;
        break;
      default:
        reader.status = DecodeStatus::kDamaged;
    }
  }
  std::longjmp(reader.back, 1);
}

boolean out_of_bytes(j_decompress_ptr info) {
  reader_of(reinterpret_cast<j_common_ptr>(info)).status = DecodeStatus::kTruncated;
  ERREXIT(info, JERR_INPUT_EOF);
  return FALSE;
}

void skip_bytes(j_decompress_ptr info, long count) {
  if (count <= 0) return;
  if (static_cast<size_t>(count) > info->src->bytes_in_buffer) out_of_bytes(info);
  info->src->next_input_byte += count;
  info->src->bytes_in_buffer -= static_cast<size_t>(count);
}

void stop_at_too_many_scans(j_common_ptr info) {
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= kMostScans) return;
  reader_of(info).status = DecodeStatus::kUnsupported;
  ERREXIT(info, JERR_BAD_PROGRESSION);
}

void prepare(JpegReader& reader, const EncodedPicture& picture) {
  reader.info.err = jpeg_std_error(&reader.errors);
  reader.errors.error_exit = leave;
  reader.errors.emit_message = [](j_common_ptr, int) {};
  reader.errors.output_message = [](j_common_ptr) {};
  reader.info.client_data = &reader;
  reader.source.next_input_byte = picture.bytes;
  reader.source.bytes_in_buffer = picture.num_bytes;
  reader.source.init_source = [](j_decompress_ptr) {};
  reader.source.fill_input_buffer = out_of_bytes;
  reader.source.skip_input_data = skip_bytes;
  reader.source.resync_to_restart = jpeg_resync_to_restart;
  reader.source.term_source = [](j_decompress_ptr) {};
  reader.progress.progress_monitor = stop_at_too_many_scans;
}

bool read_header(JpegReader& reader) {
  if (setjmp(reader.back)) return false;
  jpeg_create_decompress(&reader.info);
  reader.info.src = &reader.source;
  reader.info.progress = &reader.progress;
  jpeg_read_header(&reader.info, TRUE);
  switch (reader.info.num_components) {
    case 1:
      reader.info.out_color_space = JCS_GRAYSCALE;
      break;
    case 3:
      reader.info.out_color_space = JCS_RGB;
      break;
    case 4:
      reader.info.out_color_space = JCS_CMYK;
      break;
    default:
      reader.status = DecodeStatus::kUnsupported;
      ERREXIT(&reader.info, JERR_COMPONENT_COUNT);
  }
  return true;
}

bool read_tables(JpegReader& reader) {
  if (setjmp(reader.back)) return false;
  jpeg_start_decompress(&reader.info);
  return true;
}

bool read_rows(JpegReader& reader, uint8_t* out, size_t row_bytes) {
  if (!read_tables(reader)) return false;
  if (setjmp(reader.back)) return false;
  while (reader.info.output_scanline < reader.info.output_height) {
    constexpr unsigned kRows = 16;
    JSAMPROW rows[kRows];
    unsigned count = 0;
    for (; count < kRows && reader.info.output_scanline + count < reader.info.output_height;
         ++count)
      rows[count] = out + (reader.info.output_scanline + count) * row_bytes;
    jpeg_read_scanlines(&reader.info, rows, count);
  }
  return true;
}

}  // namespace

DecodeStatus decode_jpeg(const EncodedPicture& picture, RawPicture& out, std::string& why) {
  JpegReader reader;
  prepare(reader, picture);
  if (read_header(reader)) {
    const Size size{reader.info.image_width, reader.info.image_height};
    if (size != picture.size) {
      why = "another size in its frame";
      return DecodeStatus::kDamaged;
    }
    const PixelMode mode = reader.info.num_components == 1   ? PixelMode::kGrey
                           : reader.info.num_components == 3 ? PixelMode::kRgb
                                                             : PixelMode::kCmyk;
    if (picture.only_tables) {
      read_tables(reader);
      why = reader.why;
      return reader.status;
    }
    out = RawPicture(mode, size);
    read_rows(reader, out.bytes.data(), static_cast<size_t>(size.width * bytes_per_pixel(mode)));
    if (mode == PixelMode::kCmyk && reader.status == DecodeStatus::kDone) {
      // The makers of such files store how much of each ink is missing.
      uint8_t* const bytes = out.bytes.data();
      for (int64_t i = 0; i < out.bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(~bytes[i]);
    }
  }
  why = reader.why;
  return reader.status;
}

}  // namespace danlu::media
