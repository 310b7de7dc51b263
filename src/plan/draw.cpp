#include "plan/draw.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <set>
#include <utility>

#include "base/message.h"

namespace danlu::plan {
namespace {

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '&') {
      out += "&amp;";
    } else {
      out += c;
    }
  }
  return out;
}

constexpr double kLeft = 70, kTop = 58, kRow = 28, kWidth = 1400;

std::string colour(arch::Work work, int64_t chunk) {
  std::array<int, 3> rgb = {120, 190, 120};  // backward
  if (work == arch::Work::kForward) rgb = {125, 170, 235};
  if (work == arch::Work::kBackwardInput) rgb = {110, 200, 200};
  if (work == arch::Work::kBackwardWeight) rgb = {240, 175, 95};
  const double shade = 1.0 / (1.0 + 0.25 * static_cast<double>(chunk));
  return fmt::format("#{:02x}{:02x}{:02x}", static_cast<int>(rgb[0] * shade),
                     static_cast<int>(rgb[1] * shade), static_cast<int>(rgb[2] * shade));
}

std::string name_of_work(arch::Work work) {
  switch (work) {
    case arch::Work::kForward:
      return tr("forward");
    case arch::Work::kBackwardInput:
      return tr("backward: what came in");
    case arch::Work::kBackwardWeight:
      return tr("backward: weights");
    default:
      return tr("backward");
  }
}

/// One box for each kind of work and run of layers that the schedule has.
void add_legend(const Simulated& simulated, std::string& out) {
  std::set<std::pair<arch::Work, int64_t>> kinds;
  int64_t chunks = 0;
  for (const Span& span : simulated.spans) {
    kinds.emplace(span.work, span.chunk);
    chunks = std::max(chunks, span.chunk + 1);
  }
  double x = kLeft;
  for (const auto& [work, chunk] : kinds) {
    const std::string name =
        chunks > 1 ? tr("{}, layers' run {}", name_of_work(work), chunk) : name_of_work(work);
    fmt::format_to(std::back_inserter(out),
                   "<path d=\"M{:.0f} 32h14v14h-14z\" fill=\"{}\"/>"
                   "<text x=\"{:.0f}\" y=\"43\">{}</text>\n",
                   x, colour(work, chunk), x + 18, name);
    x += 30 + 7 * static_cast<double>(name.size());
  }
}

/// Marks of 1, 2 or 5 times a power of ten of seconds, about ten of them.
void add_axis(double seconds, double y, std::string& out) {
  if (seconds <= 0) return;
  const double power = std::pow(10, std::floor(std::log10(seconds / 10)));
  double step = power;
  for (const double times : {2.0, 5.0, 10.0}) {
    if (seconds / step > 10) step = times * power;
  }
  for (int i = 0; static_cast<double>(i) * step <= seconds; ++i) {
    const double x = kLeft + static_cast<double>(i) * step / seconds * kWidth;
    fmt::format_to(std::back_inserter(out),
                   "<path d=\"M{0:.1f} {1:.0f}v5\" stroke=\"#000\"/>"
                   "<text x=\"{0:.1f}\" y=\"{2:.0f}\" text-anchor=\"middle\">{3:.4g} s</text>\n",
                   x, y, y + 17, static_cast<double>(i) * step);
  }
}

}  // namespace

std::string draw_schedule(const Simulated& simulated, const std::string& title) {
  const double scale = simulated.seconds > 0 ? kWidth / simulated.seconds : 0;
  const double bottom = kTop + kRow * static_cast<double>(simulated.busy.size());
  std::string out;
  const auto to = std::back_inserter(out);
  fmt::format_to(to, "<svg xmlns=\"{}\" width=\"{:.0f}\" height=\"{:.0f}\" ",
                 "http://www.w3.org/2000/svg", kLeft + kWidth + 30, bottom + 26);
  fmt::format_to(to, "font-family=\"sans-serif\" font-size=\"11\">\n");
  fmt::format_to(to, "<path d=\"M0 0h{:.0f}v{:.0f}h-{:.0f}z\" fill=\"#fff\"/>\n",
                 kLeft + kWidth + 30, bottom + 26, kLeft + kWidth + 30);
  fmt::format_to(to, "<text x=\"8\" y=\"20\" font-size=\"14\">{}</text>\n",
                 tr("{}; bubble {:.1f} %", escaped(title), 100 * simulated.bubble));
  add_legend(simulated, out);
  for (size_t s = 0; s < simulated.busy.size(); ++s) {
    fmt::format_to(to, "<text x=\"8\" y=\"{:.1f}\">{}</text>\n",
                   kTop + kRow * static_cast<double>(s) + 17, tr("stage {}", s));
  }
  for (const Span& span : simulated.spans) {
    const double x = kLeft + span.start * scale, width = (span.end - span.start) * scale;
    const double y = kTop + kRow * static_cast<double>(span.stage);
    fmt::format_to(to,
                   "<rect x=\"{:.1f}\" y=\"{:.0f}\" width=\"{:.1f}\" height=\"24\" fill=\"{}\" "
                   "stroke=\"#fff\" stroke-width=\"0.5\"/>\n",
                   x, y, width, colour(span.work, span.chunk));
    if (width > 9)
      fmt::format_to(to, "<text x=\"{:.1f}\" y=\"{:.0f}\" text-anchor=\"middle\">{}</text>\n",
                     x + width / 2, y + 16, span.micro_batch);
  }
  add_axis(simulated.seconds, bottom + 2, out);
  out += "</svg>\n";
  return out;
}

}  // namespace danlu::plan
