// plan/draw.h: a picture of a simulated schedule.
#pragma once
#include <string>

#include "plan/simulate.h"

namespace danlu::plan {

/// SVG text: a row for each stage, a box for each work with its micro-batch's number, colours for
/// forward, backward and the weights' part, darker ones for later chunks. `title` is escaped.
std::string draw_schedule(const Simulated& simulated, const std::string& title);

}  // namespace danlu::plan
