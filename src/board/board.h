// board/board.h: the runs below some directories, watched in the background and told by HTTP.
#pragma once
#include <filesystem>
#include <memory>
#include <vector>

#include "http/router.h"

namespace danlu::board {

/// Watches from here until it goes; looks once a second, and seldom while nobody asks.
class Board {
 public:
  explicit Board(std::vector<std::filesystem::path> directories);
  ~Board();
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  /// GET /api/runs, /api/runs/events (server-sent: "changes", with what Runs::changes gives),
  /// /api/runs/{id} and below it /curves?names=&generation=&after=&from=&to=&points=, /settings,
  /// /log?name=&bytes= and /samples?before=&count=. What is not there is a 404, a number that is
  /// none a 400; errors have OpenAI's shape. The routes may outlive the board: they then say 503.
  void add_routes(http::Router& router) const;

  /// Ends the answers of those who listen, which would last for ever, and whatever is asked later:
  /// before a server waits for answers under way. Again it does nothing.
  void end();

 private:
  class Watch;
  std::shared_ptr<Watch> watch_;
};

}  // namespace danlu::board
