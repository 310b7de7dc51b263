#include "infer/form_work.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "device/parallel.h"

namespace danlu::infer {
namespace {

/// Small beside a pass's work, so that many who begin together keep nobody waiting for long.
constexpr int64_t kSlice = 1 << 10;
/// Passes that a form sits out at most before it has a turn whatever it has cost.
constexpr int64_t kMostPasses = 8;

struct Turn {
  LiveRequest* live;
  int64_t given, spent = 0;
  std::exception_ptr error = {};
};

void take_turn(Turn& turn) {
  int64_t left = turn.given;
  try {
    turn.live->awaits_form = !turn.live->asked.request.rules.constraint->prepare(left);
  } catch (const std::exception&) {  // too little memory as well: it is this request's alone
    turn.error = std::current_exception();
  }
  turn.spent = turn.given - left;
  turn.live->form_work += turn.spent;
}

/// Who has sat out kMostPasses, this one among them, and more than any other; nullptr: nobody.
LiveRequest* most_patient(const std::vector<LiveRequest*>& asking) {
  LiveRequest* patient = nullptr;
  for (LiveRequest* const live : asking) {
    if (++live->form_passes < kMostPasses) continue;
    if (!patient || live->form_passes > patient->form_passes) patient = live;
  }
  if (patient) patient->form_passes = 0;
  return patient;
}

}  // namespace

std::vector<FailedForm> work_on_forms(const LiveRequests& running, const LiveRequests& waiting,
                                      int64_t places, int64_t work) {
  std::vector<LiveRequest*> asking;
  for (const LiveRequests* requests : {&running, &waiting}) {
    for (const auto& [rank, live] : *requests) {
      if (places-- <= 0) break;
      if (live->awaits_form) asking.push_back(live.get());
    }
  }
  std::vector<FailedForm> failed;
  const auto end_turn = [&](const Turn& turn) {
    if (turn.error) failed.push_back({turn.live, turn.error});
    if (turn.error || !turn.live->awaits_form) std::erase(asking, turn.live);
  };
  if (LiveRequest* const patient = most_patient(asking)) {
    Turn turn{patient, std::min(kSlice, (work + 1) / 2)};
    take_turn(turn);
    work -=
        std::clamp<int64_t>(turn.spent, 1, turn.given);  // its last step is not the others' loss
    end_turn(turn);
  }
  const auto threads = static_cast<size_t>(std::max(1, at::get_num_threads()));
  while (!asking.empty() && work > 0) {
    std::stable_sort(asking.begin(), asking.end(),
                     [](const auto* a, const auto* b) { return a->form_work < b->form_work; });
    std::vector<Turn> turns;
    int64_t given = 0;
    for (LiveRequest* const live : asking) {
      if (given == work || turns.size() == threads) break;
      turns.push_back({live, std::min(work - given, kSlice)});
      given += turns.back().given;
    }
    device::parallel_each(turns.size(), [&](size_t i) { take_turn(turns[i]); });
    for (const Turn& turn : turns) {
      work -= std::max<int64_t>(turn.spent, 1);
      end_turn(turn);
    }
  }
  return failed;
}

}  // namespace danlu::infer
