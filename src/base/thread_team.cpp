#include "base/thread_team.h"

#include <sched.h>

#include <utility>

#include "base/clock.h"

namespace danlu {
namespace {

constexpr int kLooksAtOnce = 64;
constexpr double kLooks_s = 1e-3;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

template <typename Done>
bool comes_soon(const Done& is_done) {
  const auto look = [&] {
    for (int i = 0; i < kLooksAtOnce; ++i) {
      if (is_done()) return true;
      pause();
    }
    return false;
  };
  if (look()) return true;
  const double end_s = steady_now_s() + kLooks_s;
  do {
    ::sched_yield();
    if (look()) return true;
  } while (steady_now_s() < end_s);
  return false;
}

}  // namespace

void Gate::add_one() {
  value_.fetch_add(1);
  // Either this sees the sleeper, or the sleeper, who looks once more, the number.
  if (!sleeps_.load()) return;
  {
    const std::lock_guard lock(mutex_);
  }
  changed_.notify_one();
}

void Gate::wait_for(size_t value) {
  const auto is_there = [&] { return value_.load() == value; };
  if (comes_soon(is_there)) return;
  std::unique_lock lock(mutex_);
  sleeps_.store(true);
  changed_.wait(lock, is_there);
  sleeps_.store(false);
}

ThreadTeam::~ThreadTeam() {
  for (const auto& member : members_) {
    member->body = nullptr;
    member->tasks.add_one();
  }
  threads_.join();
}

void ThreadTeam::run(size_t parts, Body body, void* context) {
  while (members_.size() + 1 < parts) {
    auto member = std::make_unique<Member>();
    threads_.start([this, &own = *member, part = members_.size() + 1] { work(own, part); });
    members_.push_back(std::move(member));
  }
  done_.set(0);
  for (size_t i = 0; i + 1 < parts; ++i) {
    members_[i]->body = body;
    members_[i]->context = context;
    members_[i]->tasks.add_one();
  }
  take_part(body, context, 0);
  done_.wait_for(parts - 1);
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void ThreadTeam::work(Member& member, size_t part) {
  begin_();
  for (size_t task = 1;; ++task) {
    member.tasks.wait_for(task);
    if (!member.body) return;
    take_part(member.body, member.context, part);
    done_.add_one();
  }
}

void ThreadTeam::take_part(Body body, void* context, size_t part) {
  try {
    body(context, part);
  } catch (...) {
    const std::lock_guard lock(failure_mutex_);
    if (!failure_) failure_ = std::current_exception();
  }
}

}  // namespace danlu
