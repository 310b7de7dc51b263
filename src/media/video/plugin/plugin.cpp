// libdanlu_video.so
extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/display.h>
#include <libavutil/imgutils.h>
#include <libswscale/swscale.h>
}

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <new>

#include "media/video/reader.h"

namespace danlu::media {
namespace {

/// Containers that hold their frames themselves. Playlists, lists of files and descriptions of
/// streams name other files and addresses, and are told by their content, whatever the file is
/// called.
constexpr const char* kContainers =
    "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,gif,mpegts,mpeg,flv,asf,ogg";

struct Freed {
  void operator()(AVFormatContext* format) const { avformat_close_input(&format); }
  void operator()(AVCodecContext* codec) const { avcodec_free_context(&codec); }
  void operator()(AVPacket* packet) const { av_packet_free(&packet); }
  void operator()(AVFrame* frame) const { av_frame_free(&frame); }
  void operator()(SwsContext* scaler) const { sws_freeContext(scaler); }
  void operator()(AVIOContext* input) const {
    av_freep(&input->buffer);
    avio_context_free(&input);
  }
};
template <typename T>
using Owned = std::unique_ptr<T, Freed>;

struct VideoBytes {
  const uint8_t* data = nullptr;
  int64_t size = 0, at = 0;
};

int read_bytes(void* opaque, uint8_t* to, int count) {
  auto& bytes = *static_cast<VideoBytes*>(opaque);
  const int64_t given = std::min<int64_t>(count, bytes.size - bytes.at);
  if (given <= 0) return AVERROR_EOF;
  std::memcpy(to, bytes.data + bytes.at, static_cast<size_t>(given));
  bytes.at += given;
  return static_cast<int>(given);
}

int64_t seek_bytes(void* opaque, int64_t offset, int whence) {
  auto& bytes = *static_cast<VideoBytes*>(opaque);
  whence &= ~AVSEEK_FORCE;
  if (whence == AVSEEK_SIZE) return bytes.size;
  const int64_t base = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? bytes.at : bytes.size;
  if (offset < -base || base + offset > bytes.size) return AVERROR(EINVAL);
  return bytes.at = base + offset;
}

int open_nothing_else(AVFormatContext*, AVIOContext**, const char*, int, AVDictionary**) {
  return AVERROR(EPERM);
}

DecodeStatus status_of_error(int code, std::string& why) {
  char text[AV_ERROR_MAX_STRING_SIZE] = "";
  av_strerror(code, text, sizeof text);
  why = text;
  if (code == AVERROR(ENOMEM)) return DecodeStatus::kNoMemory;
  if (code == AVERROR_EOF) return DecodeStatus::kTruncated;
  if (code == AVERROR_DECODER_NOT_FOUND || code == AVERROR_PATCHWELCOME) {
    return DecodeStatus::kUnsupported;
  }
  return DecodeStatus::kDamaged;
}

class AvReader : public VideoReader {
 public:
  AvReader(const uint8_t* bytes, size_t num_bytes)
      : bytes_{bytes, static_cast<int64_t>(num_bytes), 0} {}

  DecodeStatus open(int64_t max_pixels, std::string& why) {
    if (const int code = open_container(); code < 0) return status_of_error(code, why);
    const AVCodec* decoder = nullptr;
    const int best = av_find_best_stream(format_.get(), AVMEDIA_TYPE_VIDEO, -1, -1, &decoder, 0);
    if (best == AVERROR_STREAM_NOT_FOUND) {
      why = "it has no pictures";
      return DecodeStatus::kUnsupported;
    }
    if (best < 0) return status_of_error(best, why);
    stream_ = format_->streams[best];
    for (unsigned i = 0; i < format_->nb_streams; ++i) {
      if (format_->streams[i] != stream_) format_->streams[i]->discard = AVDISCARD_ALL;
    }
    const Size size{stream_->codecpar->width, stream_->codecpar->height};
    if (size.area() > max_pixels) return DecodeStatus::kTooLarge;
    max_pixels_ = max_pixels;
    if (const int code = open_decoder(decoder, max_pixels); code < 0) {
      return status_of_error(code, why);
    }
    read_facts(size);
    return DecodeStatus::kDone;
  }

  const VideoFacts& facts() const override { return facts_; }
  bool is_there() const override { return is_there_; }

  DecodeStatus next(std::string& why) override {
    is_there_ = false;
    while (true) {
      const int received = avcodec_receive_frame(codec_.get(), frame_.get());
      if (received == 0) {
        is_there_ = true;
        return DecodeStatus::kDone;
      }
      if (received == AVERROR_EOF) return DecodeStatus::kDone;
      if (received != AVERROR(EAGAIN)) return status_of_error(received, why);
      if (const int sent = send_packet(); sent < 0) return status_of_error(sent, why);
    }
  }

  DecodeStatus picture(Picture& out, std::string& why) override {
    const Size size{frame_->width, frame_->height};
    if (size.width <= 0 || size.height <= 0 || size.area() > max_pixels_) {
      why = "a frame changes its size";
      return DecodeStatus::kDamaged;
    }
    scaler_.reset(sws_getCachedContext(scaler_.release(), frame_->width, frame_->height,
                                       static_cast<AVPixelFormat>(frame_->format), frame_->width,
                                       frame_->height, AV_PIX_FMT_RGB24, SWS_BICUBIC, nullptr,
                                       nullptr, nullptr));
    if (!scaler_) {
      why = "its colours are stored in a way that libswscale does not know";
      return DecodeStatus::kUnsupported;
    }
    set_colours();
    out = Picture(size);
    // Rows of its own: libswscale writes a little after the width.
    AvPicture rows(frame_->width, frame_->height);
    if (rows.code < 0) return status_of_error(rows.code, why);
    sws_scale(scaler_.get(), frame_->data, frame_->linesize, 0, frame_->height, rows.data,
              rows.linesize);
    for (int64_t y = 0; y < size.height; ++y) {
      std::memcpy(out.rgb.data() + y * size.width * 3, rows.data[0] + y * rows.linesize[0],
                  static_cast<size_t>(size.width * 3));
    }
    return DecodeStatus::kDone;
  }

 private:
  struct AvPicture {
    AvPicture(int width, int height)
        : code(av_image_alloc(data, linesize, width, height, AV_PIX_FMT_RGB24, 64)) {}
    ~AvPicture() { av_freep(&data[0]); }
    uint8_t* data[4] = {};
    int linesize[4] = {};
    int code;
  };

  int open_container() {
    constexpr int kBufferBytes = 1 << 16;
    auto* buffer = static_cast<uint8_t*>(av_malloc(kBufferBytes));
    if (!buffer) return AVERROR(ENOMEM);
    input_.reset(
        avio_alloc_context(buffer, kBufferBytes, 0, &bytes_, read_bytes, nullptr, seek_bytes));
    if (!input_) {
      av_free(buffer);
      return AVERROR(ENOMEM);
    }
    AVFormatContext* format = avformat_alloc_context();
    if (!format) return AVERROR(ENOMEM);
    format->pb = input_.get();
    format->flags |= AVFMT_FLAG_CUSTOM_IO;
    format->io_open = open_nothing_else;
    format->format_whitelist = av_strdup(kContainers);
    format->protocol_whitelist = av_strdup("none");
    // It frees what it was given if it fails.
    if (const int code = avformat_open_input(&format, nullptr, nullptr, nullptr); code < 0) {
      return code;
    }
    format_.reset(format);
    return avformat_find_stream_info(format, nullptr);
  }

  int open_decoder(const AVCodec* decoder, int64_t max_pixels) {
    codec_.reset(avcodec_alloc_context3(decoder));
    packet_.reset(av_packet_alloc());
    frame_.reset(av_frame_alloc());
    if (!codec_ || !packet_ || !frame_) return AVERROR(ENOMEM);
    if (const int code = avcodec_parameters_to_context(codec_.get(), stream_->codecpar); code < 0) {
      return code;
    }
    codec_->max_pixels = max_pixels;
    codec_->thread_count = 1;  // videos are decoded side by side, by the caller's threads
    codec_->pkt_timebase = stream_->time_base;
    return avcodec_open2(codec_.get(), decoder, nullptr);
  }

  void read_facts(Size size) {
    facts_.size = size;
    facts_.orientation = orientation();
    facts_.total_frames = std::max<int64_t>(0, stream_->nb_frames);
    facts_.frames_per_second = stream_->avg_frame_rate.den ? av_q2d(stream_->avg_frame_rate) : 0.0;
    if (stream_->duration != AV_NOPTS_VALUE && stream_->duration > 0) {
      facts_.duration_s = static_cast<double>(stream_->duration) * av_q2d(stream_->time_base);
    }
  }

  /// The matrix by which players turn frames; null: none.
  const int32_t* display_matrix() const {
#if LIBAVCODEC_VERSION_MAJOR >= 61
    const AVCodecParameters& parameters = *stream_->codecpar;
    const AVPacketSideData* data = av_packet_side_data_get(
        parameters.coded_side_data, parameters.nb_coded_side_data, AV_PKT_DATA_DISPLAYMATRIX);
    if (!data || data->size < 9 * sizeof(int32_t)) return nullptr;
    return reinterpret_cast<const int32_t*>(data->data);
#else
    size_t bytes = 0;
    const uint8_t* data = av_stream_get_side_data(stream_, AV_PKT_DATA_DISPLAYMATRIX, &bytes);
    return data && bytes >= 9 * sizeof(int32_t) ? reinterpret_cast<const int32_t*>(data) : nullptr;
#endif
  }

  /// EXIF's orientation of frames that are to be turned by a quarter, half or three quarters.
  int orientation() const {
    const int32_t* const matrix = display_matrix();
    if (!matrix) return 1;
    // Counter-clockwise, in degrees; no number where the matrix is none.
    const double turn = av_display_rotation_get(matrix);
    if (!(turn >= -360 && turn <= 360)) return 1;
    constexpr int kByQuarters[] = {1, 8, 3, 6};
    const auto quarters = static_cast<int>(std::lround(turn / 90));
    return kByQuarters[(quarters % 4 + 4) % 4];
  }

  /// The next packet of the stream to the decoder; at the end, that there is no other.
  int send_packet() {
    while (true) {
      const int read = av_read_frame(format_.get(), packet_.get());
      if (read == AVERROR_EOF || (read < 0 && avio_feof(input_.get()))) {
        return ended_ ? AVERROR_EOF : (ended_ = true, avcodec_send_packet(codec_.get(), nullptr));
      }
      if (read < 0) return read;
      const bool ours = packet_->stream_index == stream_->index;
      const int sent = ours ? avcodec_send_packet(codec_.get(), packet_.get()) : 0;
      av_packet_unref(packet_.get());
      if (ours) return sent;
    }
  }

  void set_colours() {
    const int space =
        frame_->colorspace == AVCOL_SPC_UNSPECIFIED || frame_->colorspace == AVCOL_SPC_RGB
            ? SWS_CS_DEFAULT
            : frame_->colorspace;
    const int* const matrix = sws_getCoefficients(space);
    const int full = frame_->color_range == AVCOL_RANGE_JPEG ? 1 : 0;
    sws_setColorspaceDetails(scaler_.get(), matrix, full, sws_getCoefficients(SWS_CS_DEFAULT), 1, 0,
                             1 << 16, 1 << 16);
  }

  VideoBytes bytes_;
  VideoFacts facts_;
  int64_t max_pixels_ = 0;
  bool is_there_ = false, ended_ = false;
  // Freed from the last to the first: the container reads through its input.
  Owned<AVIOContext> input_;
  Owned<AVFormatContext> format_;
  AVStream* stream_ = nullptr;
  Owned<AVCodecContext> codec_;
  Owned<AVPacket> packet_;
  Owned<AVFrame> frame_;
  Owned<SwsContext> scaler_;
};

}  // namespace
}  // namespace danlu::media

extern "C" danlu::media::DecodeStatus danlu_video_open(const uint8_t* bytes, size_t num_bytes,
                                                       int64_t max_pixels,
                                                       danlu::media::VideoReader*& out,
                                                       std::string& why) {
  using namespace danlu::media;
  out = nullptr;
  av_log_set_callback([](void*, int, const char*, va_list) {});
  try {
    auto reader = std::make_unique<AvReader>(bytes, num_bytes);
    const DecodeStatus status = reader->open(max_pixels, why);
    if (status == DecodeStatus::kDone) out = reader.release();
    return status;
  } catch (const std::bad_alloc&) {
    return DecodeStatus::kNoMemory;
  }
}
