// arch/axes.h: the axes along which the ranks of a job stand, and sets of them.
#pragma once
#include <array>
#include <compare>
#include <cstdint>
#include <initializer_list>

namespace danlu::arch {

/// Ranks of the tensor axis hold parts of every layer, of the context axis parts of every sequence,
/// of the expert axis other experts, of the data axis other samples, of the pipeline other layers.
/// Ranks of the expert axis have other samples too: it is the inner part of the data axis.
enum class Axis : uint8_t { kTensor, kContext, kExpert, kData, kPipeline };

/// In the order in which ranks are numbered, innermost first.
inline constexpr std::array kAllAxes = {Axis::kTensor, Axis::kContext, Axis::kExpert, Axis::kData,
                                        Axis::kPipeline};

/// A set of axes.
class Axes {
 public:
  constexpr Axes() = default;
  constexpr Axes(std::initializer_list<Axis> axes) {
    for (const Axis axis : axes) bits_ = static_cast<uint8_t>(bits_ | bit(axis));
  }
  constexpr bool has(Axis axis) const { return (bits_ & bit(axis)) != 0; }
  constexpr Axes with(Axis axis) const { return Axes(static_cast<uint8_t>(bits_ | bit(axis))); }
  constexpr Axes without(Axis axis) const { return Axes(static_cast<uint8_t>(bits_ & ~bit(axis))); }
  auto operator<=>(const Axes&) const = default;

 private:
  explicit constexpr Axes(uint8_t bits) : bits_(bits) {}
  static constexpr unsigned bit(Axis axis) { return 1U << static_cast<unsigned>(axis); }
  uint8_t bits_ = 0;
};

}  // namespace danlu::arch
