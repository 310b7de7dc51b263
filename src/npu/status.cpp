#include "npu/status.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>

#include "npu/context.h"
#include "npu/library.h"

namespace danlu::npu {
namespace {

struct Meaning {
  ExitCode code = ExitCode::kDevice;
  std::string hint;
};

std::string log_folder() {
  const char* const path = std::getenv("ASCEND_PROCESS_LOG_PATH");
  const char* const home = std::getenv("HOME");
  return path ? path : std::string(home ? home : "~") + "/ascend/log";
}

Meaning meaning_of_hardware(int code) {
  switch (code) {
    case 507033:
      return {ExitCode::kDevice, tr("is the user in the group HwHiAiUser, and may it open "
                                    "/dev/davinci*?")};
    case 507053:
    case 507054:
      return {ExitCode::kDevice,
              tr("the card's memory is faulty (ECC): take the machine out of the job; npu-smi info "
                 "says the card's health")};
    case 507010:
    case 507901:
      return {ExitCode::kDevice,
              tr("the card is faulty or was lost: npu-smi info says its health; take the machine "
                 "out of the job")};
    case 107020:
    case 507046:
    case 507047:
      return {ExitCode::kComm,
              tr("the card waited too long: look for the rank that stopped first")};
    default:
      return {ExitCode::kDevice,
              tr("the card's state is lost; logs are in {}; ASCEND_LAUNCH_BLOCKING=1 finds the "
                 "operator",
                 log_folder())};
  }
}

Meaning meaning_of(int code) {
  switch (code) {
    case 200000:
    case 207001:
    case 207018:
      return {ExitCode::kMemory,
              tr("use smaller micro batches, --recompute, more ranks or ZeRO; npu-smi info shows "
                 "other processes on the card")};
    case 100039:
      return {ExitCode::kDevice,
              tr("the libascendcl.so of CANN's devlib folder was loaded, which serves linking "
                 "alone: take that folder out of LD_LIBRARY_PATH")};
    case 107001:
    case 200002:
    case 207004:
      return {ExitCode::kDevice,
              tr("npu-smi info lists the cards; ASCEND_RT_VISIBLE_DEVICES hides some")};
    case 207005:
    case 207008:
      return {ExitCode::kDevice,
              tr("streams or events of the card are used up: other processes hold them")};
    case 561003:
    case 561112:
      return {ExitCode::kDevice, tr("install CANN's package of operators for this chip")};
    case 561107:
    case 100001:
      return {ExitCode::kDevice,
              tr("source CANN's set_env.sh before danlu: ASCEND_OPP_PATH is not set")};
    default:
      break;
  }
  constexpr int kRuntimeFailed = 361001;  // of an operator, by something before it
  if (code >= 507000 || code == 107020 || code == kRuntimeFailed) return meaning_of_hardware(code);
  return {ExitCode::kInternal, tr("please report it, with the log in {}", log_folder())};
}

constexpr size_t kRemembered = 8;
std::array<std::atomic<const char*>, kRemembered> launches{};
std::atomic<size_t> num_launches = 0;

}  // namespace

void note_launch(const char* name) { launches[num_launches++ % kRemembered] = name; }

std::string last_launches() {
  std::string text;
  const size_t end = num_launches, begin = end > kRemembered ? end - kRemembered : 0;
  for (size_t i = begin; i < end; ++i) {
    const char* const name = launches[i % kRemembered];
    if (name) text += (text.empty() ? "" : ", ") + std::string(name);
  }
  return text;
}

Error error_of(int code, const std::string& what) {
  const char* const said = acl().aclGetRecentErrMsg();
  std::string text = said ? said : "";
  for (char& c : text) c = c == '\n' || c == '\r' ? ' ' : c;
  const Meaning meaning = meaning_of(code);
  std::string line = tr("[npu] {}: {} failed with {}", card_name(entered()), what, code);
  if (!text.empty()) line += ": " + text;
  const std::string before = last_launches();
  if (code >= 507000 && !before.empty()) line += tr(" (launched last: {})", before);
  return Error(meaning.code, line, meaning.hint);
}

void check(int code, const char* what) {
  if (code != kAclOk) throw_as_kind(error_of(code, what));
}

}  // namespace danlu::npu
