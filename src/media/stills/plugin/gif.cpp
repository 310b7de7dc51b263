#include <gif_lib.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "media/stills/plugin/formats.h"

namespace danlu::media {
namespace {

struct GifBytes {
  const uint8_t* next;
  size_t left;
};

int give_gif_bytes(GifFileType* gif, GifByteType* to, int count) {
  auto& bytes = *static_cast<GifBytes*>(gif->UserData);
  const size_t given = std::min(bytes.left, static_cast<size_t>(count));
  std::memcpy(to, bytes.next, given);
  bytes.next += given;
  bytes.left -= given;
  return static_cast<int>(given);
}

struct CloseGif {
  void operator()(GifFileType* gif) const { DGifCloseFile(gif, nullptr); }
};

DecodeStatus gif_failure(int error, const GifBytes& bytes, std::string& why) {
  const char* text = GifErrorString(error);
  why = text ? text : "giflib cannot decode it";
  if (error == D_GIF_ERR_NOT_ENOUGH_MEM) return DecodeStatus::kNoMemory;
  const bool ended = error == D_GIF_ERR_READ_FAILED || error == D_GIF_ERR_EOF_TOO_SOON;
  return ended && bytes.left == 0 ? DecodeStatus::kTruncated : DecodeStatus::kDamaged;
}

/// False where index and colour are the same thing: such a picture is grey.
bool has_colours(const ColorMapObject* map) {
  if (!map) return false;
  for (int i = 0; i < map->ColorCount; ++i) {
    const GifColorType& colour = map->Colors[i];
    if (colour.Red != i || colour.Green != i || colour.Blue != i) return true;
  }
  return false;
}

std::vector<uint8_t> palette_of(const ColorMapObject& map) {
  std::vector<uint8_t> palette(3 * 256, 0);
  for (int i = 0; i < std::min(map.ColorCount, 256); ++i) {
    uint8_t* const colour = palette.data() + 3 * i;
    colour[0] = map.Colors[i].Red;
    colour[1] = map.Colors[i].Green;
    colour[2] = map.Colors[i].Blue;
  }
  return palette;
}

/// What stands before the first frame; its transparent index, or -1, is in `transparent`.
bool go_to_first_frame(GifFileType* gif, int& transparent) {
  GifRecordType type = UNDEFINED_RECORD_TYPE;
  while (DGifGetRecordType(gif, &type) == GIF_OK) {
    if (type == IMAGE_DESC_RECORD_TYPE) return DGifGetImageDesc(gif) == GIF_OK;
    if (type == TERMINATE_RECORD_TYPE) return false;
    if (type != EXTENSION_RECORD_TYPE) continue;
    int code = 0;
    GifByteType* block = nullptr;
    if (DGifGetExtension(gif, &code, &block) != GIF_OK) return false;
    while (block) {
      GraphicsControlBlock control;
      if (code == GRAPHICS_EXT_FUNC_CODE &&
          DGifExtensionToGCB(block[0], block + 1, &control) == GIF_OK) {
        transparent = control.TransparentColor;
      }
      if (DGifGetExtensionNext(gif, &block) != GIF_OK) return false;
    }
  }
  return false;
}

bool read_gif_rows(GifFileType* gif, RawPicture& out) {
  static constexpr int kStarts[] = {0, 4, 2, 1}, kSteps[] = {8, 8, 4, 2};
  const GifImageDesc& frame = gif->Image;
  const int passes = frame.Interlace ? 4 : 1;
  for (int pass = 0; pass < passes; ++pass) {
    const int step = frame.Interlace ? kSteps[pass] : 1;
    for (int y = frame.Interlace ? kStarts[pass] : 0; y < frame.Height; y += step) {
      uint8_t* const row = out.bytes.data() + (frame.Top + y) * out.size.width + frame.Left;
      if (DGifGetLine(gif, row, frame.Width) != GIF_OK) return false;
    }
  }
  return true;
}

}  // namespace

DecodeStatus decode_gif(const EncodedPicture& picture, RawPicture& out, std::string& why) {
  GifBytes bytes{picture.bytes, picture.num_bytes};
  int error = 0, transparent = -1;
  const std::unique_ptr<GifFileType, CloseGif> gif(DGifOpen(&bytes, give_gif_bytes, &error));
  if (!gif) return gif_failure(error, bytes, why);
  if (!go_to_first_frame(gif.get(), transparent)) return gif_failure(gif->Error, bytes, why);
  const GifImageDesc& frame = gif->Image;
  const Size size{std::max(gif->SWidth, frame.Left + frame.Width),
                  std::max(gif->SHeight, frame.Top + frame.Height)};
  if (size != picture.size || frame.Left < 0 || frame.Top < 0 || frame.Width <= 0 ||
      frame.Height <= 0) {
    why = "its first frame lies elsewhere";
    return DecodeStatus::kDamaged;
  }
  const ColorMapObject* map = frame.ColorMap ? frame.ColorMap : gif->SColorMap;
  out = RawPicture(has_colours(map) ? PixelMode::kPalette : PixelMode::kGrey, size);
  if (out.mode == PixelMode::kPalette) out.palette = palette_of(*map);
  if (frame.Width < size.width || frame.Height < size.height) {
    std::memset(out.bytes.data(), std::max(transparent, 0), static_cast<size_t>(out.bytes.size()));
  }
  if (!read_gif_rows(gif.get(), out)) return gif_failure(gif->Error, bytes, why);
  return DecodeStatus::kDone;
}

}  // namespace danlu::media
