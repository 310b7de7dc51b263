#include "infer/form_work.h"

#include <algorithm>

#include "device/parallel.h"

namespace danlu::infer {
namespace {

/// Small beside a pass's work, so that many who begin together keep nobody waiting for long.
constexpr uint64_t kSlice = 1 << 10;

struct Turn {
  LiveRequest* live;
  uint64_t given, spent = 0;
  std::exception_ptr error = {};
};

void take_turn(Turn& turn) {
  uint64_t left = turn.given;
  try {
    turn.live->awaits_form = !turn.live->asked.request.rules.constraint->prepare(left);
  } catch (const std::exception&) {  // too little memory as well: it is this request's alone
    turn.error = std::current_exception();
  }
  turn.spent = turn.given - left;
  turn.live->form_work += turn.spent;
}

}  // namespace

std::vector<FailedForm> work_on_forms(const LiveRequests& running, const LiveRequests& waiting,
                                      int64_t places, uint64_t work) {
  std::vector<LiveRequest*> asking;
  for (const LiveRequests* requests : {&running, &waiting}) {
    for (const auto& [rank, live] : *requests) {
      if (places-- <= 0) break;
      if (live->awaits_form) asking.push_back(live.get());
    }
  }
  std::vector<FailedForm> failed;
  while (!asking.empty() && work > 0) {
    std::stable_sort(asking.begin(), asking.end(),
                     [](const auto* a, const auto* b) { return a->form_work < b->form_work; });
    std::vector<Turn> turns;
    uint64_t given = 0;
    for (LiveRequest* const live : asking) {
      if (given == work) break;
      turns.push_back({live, std::min(work - given, kSlice)});
      given += turns.back().given;
    }
    device::parallel_each(turns.size(), [&](size_t i) { take_turn(turns[i]); });
    for (const Turn& turn : turns) {
      work -= std::max<uint64_t>(turn.spent, 1);
      if (turn.error) failed.push_back({turn.live, turn.error});
      if (turn.error || !turn.live->awaits_form) std::erase(asking, turn.live);
    }
  }
  return failed;
}

}  // namespace danlu::infer
