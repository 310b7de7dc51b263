#include "infer/schedule.h"

#include <algorithm>

#include "ops/pages.h"

namespace danlu::infer {
namespace {

/// How many pages must be added for `more` tokens after the computed ones.
int64_t growth(const RequestProgress& request, int64_t more) {
  if (more <= 0) return 0;
  return request.copies + ops::pages_for(request.computed + more) -
         ops::pages_for(request.computed);
}

/// How many of the request's tokens this pass computes, if it has room for `left` more.
int64_t tokens_in(const RequestProgress& request, int64_t left) {
  if (request.sits_out || left <= 0) return 0;
  const int64_t wanted = request.total - request.computed;
  // What must not be split may be longer than any pass: to wait for an empty one would be to wait
  // for the longest answer under way. It leaves no room, so that a pass has one such at most.
  return request.is_whole ? wanted : std::min(wanted, left);
}

}  // namespace

Schedule schedule_running(std::span<const RequestProgress> running, StepRoom room) {
  Schedule result;
  size_t kept = running.size();
  for (size_t i = 0; i < kept; ++i) {
    const RequestProgress& request = running[i];
    const int64_t tokens = tokens_in(request, room.tokens);
    const int64_t pages = growth(request, tokens);
    while (pages > room.pages && kept > i) room.pages += running[--kept].own_pages;
    if (kept <= i) break;
    result.tokens.push_back(tokens);
    room.tokens = std::max<int64_t>(0, room.tokens - tokens);
    room.pages -= pages;
    room.promised += growth(request, request.total - request.computed) - pages;
  }
  result.preempted = static_cast<int64_t>(running.size() - result.tokens.size());
  room.sequences -= std::ssize(result.tokens);
  result.left = room;
  return result;
}

int64_t admit(const RequestProgress& waiting, int64_t revived, int64_t running, StepRoom& room) {
  if (room.sequences <= 0 || room.tokens <= 0) return 0;
  const int64_t whole = growth(waiting, waiting.total - waiting.computed) + revived;
  const int64_t reserve = running > 0 ? running + room.promised : 0;
  if (whole + reserve > room.pages) return 0;
  const int64_t tokens = tokens_in(waiting, room.tokens);
  if (tokens == 0) return 0;
  const int64_t pages = growth(waiting, tokens) + revived;
  --room.sequences;
  room.tokens = std::max<int64_t>(0, room.tokens - tokens);
  room.pages -= pages;
  room.promised += whole - pages;
  return tokens;
}

}  // namespace danlu::infer
