#include "weights/torch/pickle_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <unordered_map>

#include "base/error.h"
#include "weights/torch/pickle_globals.h"

namespace danlu::weights::torch_file {
namespace {

class Machine {
 public:
  Machine(std::span<const std::byte> bytes, const std::string& origin, const PickleLimits& limits)
      : bytes_(bytes), origin_(origin), limits_(limits) {}

  Pickle run() {
    while (!done_) {
      opcode_at_ = position_;
      step(std::to_integer<uint8_t>(take(1)[0]));
    }
    pickle_.consumed_bytes = position_;
    return std::move(pickle_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw ModelError(tr("{}: pickle byte {}: {}", origin_, opcode_at_, what));
  }

  // --- bytes ---------------------------------------------------------------------------------
  std::span<const std::byte> take(size_t count) {
    if (count > bytes_.size() - position_) fail("the pickle ends in the middle");
    if (position_ + count > limits_.max_bytes)
      fail(tr("the pickle is larger than {} bytes", limits_.max_bytes));
    const auto part = bytes_.subspan(position_, count);
    position_ += count;
    return part;
  }
  uint64_t unsigned_int(size_t num_bytes) {
    uint64_t value = 0;
    const auto part = take(num_bytes);
    for (size_t i = num_bytes; i-- > 0;) value = value << 8 | std::to_integer<uint64_t>(part[i]);
    return value;
  }
  std::string_view text(uint64_t length) {
    if (length > limits_.max_string_bytes)
      fail(tr("a string of {} bytes is beyond the limit", length));
    const auto part = take(length);
    return {reinterpret_cast<const char*>(part.data()), part.size()};
  }
  std::string_view line() {
    const size_t begin = position_;
    while (std::to_integer<char>(take(1)[0]) != '\n') {
      if (position_ - begin > 4096) fail("a name is longer than 4096 bytes");
    }
    return {reinterpret_cast<const char*>(bytes_.data()) + begin, position_ - begin - 1};
  }

  // --- values and stack ----------------------------------------------------------------------
  ValueId make(Value value) {
    if (pickle_.values.size() >= limits_.max_values)
      fail(tr("more than {} objects", limits_.max_values));
    pickle_.values.push_back(std::move(value));
    return static_cast<ValueId>(pickle_.values.size() - 1);
  }
  void push(ValueId id) {
    if (stack_.size() >= limits_.max_stack)
      fail(tr("the stack is deeper than {}", limits_.max_stack));
    stack_.push_back(id);
  }
  void push_new(Value value) { push(make(std::move(value))); }
  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  ValueId pop() {
    if (stack_.size() <= floor()) fail("an operation finds too little on the stack");
    const ValueId id = stack_.back();
    stack_.pop_back();
    return id;
  }
  ValueId top() const {
    if (stack_.size() <= floor()) fail("an operation finds too little on the stack");
    return stack_.back();
  }
  std::vector<ValueId> pop_to_mark() {
    if (marks_.empty()) fail("an operation finds no mark");
    std::vector<ValueId> items(stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back()),
                               stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return items;
  }
  void push_integer(int64_t value) { push_new({.kind = Kind::kInt, .integer = value}); }
  void push_tuple(size_t count) {
    std::vector<ValueId> items(count);
    for (size_t i = count; i-- > 0;) items[i] = pop();
    push_new({.kind = Kind::kTuple, .items = std::move(items)});
  }
  void push_long(uint64_t num_bytes) {
    if (num_bytes > limits_.max_long_bytes)
      fail(tr("an integer of {} bytes is beyond the limit", num_bytes));
    const std::string_view digits = text(num_bytes);
    if (num_bytes > 8) return push_new({.kind = Kind::kBigInt, .text = digits});
    uint64_t value = 0;
    for (size_t i = num_bytes; i-- > 0;) value = value << 8 | static_cast<uint8_t>(digits[i]);
    if (num_bytes > 0 && num_bytes < 8 && (digits.back() & 0x80))
      value |= ~uint64_t{0} << (8 * num_bytes);
    push_integer(static_cast<int64_t>(value));
  }
  [[noreturn]] void refuse(std::string_view module, std::string_view name) const {
    throw ModelError(tr("{}: pickle byte {}: refused: the file asks for {}.{}, which "
                        "weights never need; it may be malicious",
                        origin_, opcode_at_, module, name),
                     tr("do not open this file with Python either; nothing in it was run"));
  }
  void push_global(std::string_view module, std::string_view name) {
    const bool may_name_a_member = is_getattr(module, name);
    if (is_dangerous_global(module, name) && !may_name_a_member) refuse(module, name);
    push_new({.kind = Kind::kGlobal, .text = module, .name = name});
    if (may_name_a_member) getattrs_.push_back(stack_.back());
  }
  /// Every getattr must have been called, and as getattr(class, "member"); nothing else may hold
  /// it.
  void check_getattrs() const {
    if (getattrs_.empty()) return;
    std::vector<bool> is_one(pickle_.values.size());
    for (const ValueId id : getattrs_) is_one[id] = true;
    const auto check = [&](ValueId id) {
      if (id != kNoValue && is_one[id]) refuse(pickle_.at(id).text, pickle_.at(id).name);
    };
    std::vector<bool> is_called(pickle_.values.size());
    for (ValueId id = 0; id < pickle_.values.size(); ++id) {
      const Value& value = pickle_.at(id);
      const bool skips_first = value.kind == Kind::kCall && is_member(pickle_, id);
      if (skips_first) is_called[value.items[0]] = true;
      for (size_t i = skips_first ? 1 : 0; i < value.items.size(); ++i) check(value.items[i]);
      check(value.state);
    }
    for (const auto& [id, items] : pickle_.call_items) {
      for (const ValueId item : items.appended) check(item);
      for (const ValueId item : items.set) check(item);
    }
    check(pickle_.root);
    for (const ValueId id : getattrs_) {
      if (!is_called[id]) check(id);
    }
  }

  // --- memo ----------------------------------------------------------------------------------
  void put(uint64_t index) {
    memo_[index] = top();
    if (memo_.size() > limits_.max_values)
      fail(tr("more than {} memo entries", limits_.max_values));
  }
  void get(uint64_t index) {
    const auto at = memo_.find(index);
    if (at == memo_.end()) fail(tr("memo entry {} was never stored", index));
    push(at->second);
  }

  // --- containers and calls --------------------------------------------------------------------
  static void extend(std::vector<ValueId>& list, const std::vector<ValueId>& items) {
    list.insert(list.end(), items.begin(), items.end());
  }
  void append_items(const std::vector<ValueId>& items) {
    Value& value = pickle_.values[top()];
    // A list subclass of unknown class stays a call, see set_items.
    if (value.kind == Kind::kCall) return extend(pickle_.call_items[top()].appended, items);
    if (value.kind != Kind::kList && value.kind != Kind::kSet)
      fail("APPEND on something that is not a list");
    extend(value.items, items);
  }
  void set_items(const std::vector<ValueId>& items) {
    if (items.size() % 2 != 0) fail("SETITEMS with a key that has no value");
    Value& value = pickle_.values[top()];
    // A dict subclass of unknown class stays a call; its items are kept beside it.
    if (value.kind == Kind::kCall) return extend(pickle_.call_items[top()].set, items);
    if (value.kind != Kind::kDict) fail("SETITEMS on something that is not a dict");
    extend(value.items, items);
  }
  void reduce(bool by_new) {
    const ValueId arguments = pop(), callable = pop();
    if (pickle_.at(callable).kind != Kind::kGlobal) fail("a call of something that is not a name");
    if (pickle_.at(arguments).kind != Kind::kTuple) fail("a call whose arguments are not a tuple");
    if (is_dict_class(pickle_.at(callable).text, pickle_.at(callable).name) &&
        push_dict(pickle_.at(callable).name == "OrderedDict", pickle_.at(arguments).items)) {
      return;
    }
    push_new({.kind = Kind::kCall, .by_new = by_new, .items = {callable, arguments}});
  }
  /// The dict that a call of a dict class makes; false for forms that stay calls.
  bool push_dict(bool is_ordered, const std::vector<ValueId>& arguments) {
    const ValueId first = arguments.empty() ? kNoValue : arguments[0];
    const Kind kind = arguments.empty() ? Kind::kNone : pickle_.at(first).kind;
    if (kind == Kind::kDict) {  // Counter({…})
      push(first);
    } else if (kind == Kind::kNone || kind == Kind::kGlobal) {  // defaultdict(factory)
      push_new({.kind = Kind::kDict, .is_ordered = is_ordered});
    } else if (kind == Kind::kList && is_ordered) {  // Python 2: OrderedDict([[key, value], …])
      std::vector<ValueId> items;
      for (const ValueId pair : pickle_.at(first).items) {
        const Value& entry = pickle_.at(pair);
        if ((entry.kind != Kind::kList && entry.kind != Kind::kTuple) || entry.items.size() != 2)
          fail("an OrderedDict made of something that is not pairs");
        extend(items, entry.items);
      }
      push_new({.kind = Kind::kDict, .is_ordered = true, .items = std::move(items)});
    } else {
      return false;
    }
    return true;
  }
  void build() {
    const ValueId state = pop();
    Value& object = pickle_.values[top()];
    if (object.kind == Kind::kDict) return;  // OrderedDict's attributes (_metadata)
    if (object.kind != Kind::kCall) fail("BUILD on something that is not an object");
    object.state = state;
  }
  void stack_global() {
    const ValueId name = pop(), module = pop();
    if (pickle_.at(name).kind != Kind::kString || pickle_.at(module).kind != Kind::kString) {
      fail("STACK_GLOBAL needs two strings");
    }
    push_global(pickle_.at(module).text, pickle_.at(name).text);
  }
  void persistent() {
    const ValueId id = pop();
    if (pickle_.at(id).kind != Kind::kTuple) fail("a storage reference must be a tuple");
    push_new({.kind = Kind::kPersistent, .items = {id}});
  }
  void stop() {
    pickle_.root = pop();
    if (!stack_.empty() || !marks_.empty()) fail("values are left over at the end");
    check_getattrs();
    done_ = true;
  }

  void step(uint8_t opcode);
  bool step_text(uint8_t opcode);
  bool step_scalar(uint8_t opcode);
  bool step_container(uint8_t opcode);

  std::span<const std::byte> bytes_;
  const std::string& origin_;
  PickleLimits limits_;
  size_t position_ = 0, opcode_at_ = 0;
  bool done_ = false;
  Pickle pickle_;
  std::vector<ValueId> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint64_t, ValueId> memo_;
  std::vector<ValueId> getattrs_;
};

bool Machine::step_text(uint8_t opcode) {
  switch (opcode) {
    case 'X':
      push_new({.kind = Kind::kString, .text = text(unsigned_int(4))});
      return true;
    case 0x8c:
      push_new({.kind = Kind::kString, .text = text(unsigned_int(1))});
      return true;
    case 0x8d:
      push_new({.kind = Kind::kString, .text = text(unsigned_int(8))});
      return true;
    case 'U':
      push_new({.kind = Kind::kString, .text = text(unsigned_int(1))});
      return true;
    case 'T':
      push_new({.kind = Kind::kString, .text = text(unsigned_int(4))});
      return true;
    case 'C':
      push_new({.kind = Kind::kBytes, .text = text(unsigned_int(1))});
      return true;
    case 'B':
      push_new({.kind = Kind::kBytes, .text = text(unsigned_int(4))});
      return true;
    case 0x8e:
      push_new({.kind = Kind::kBytes, .text = text(unsigned_int(8))});
      return true;
    default:
      return false;
  }
}

bool Machine::step_scalar(uint8_t opcode) {
  switch (opcode) {
    case 'N':
      push_new({});
      return true;
    case 0x88:
      push_new({.kind = Kind::kBool, .truth = true});
      return true;
    case 0x89:
      push_new({.kind = Kind::kBool});
      return true;
    case 'J':
      push_integer(static_cast<int32_t>(unsigned_int(4)));
      return true;
    case 'K':
      push_integer(static_cast<int64_t>(unsigned_int(1)));
      return true;
    case 'M':
      push_integer(static_cast<int64_t>(unsigned_int(2)));
      return true;
    case 0x8a:
      push_long(unsigned_int(1));
      return true;
    case 0x8b:
      push_long(unsigned_int(4));
      return true;
    case 'G': {
      // The one big-endian number of the format.
      uint64_t bits = 0;
      for (const std::byte byte : take(8)) bits = bits << 8 | std::to_integer<uint64_t>(byte);
      push_new({.kind = Kind::kFloat, .real = std::bit_cast<double>(bits)});
      return true;
    }
    default:
      return false;
  }
}

bool Machine::step_container(uint8_t opcode) {
  switch (opcode) {
    case '(':
      marks_.push_back(stack_.size());
      return true;
    case ')':
      push_new({.kind = Kind::kTuple});
      return true;
    case 't':
      push_new({.kind = Kind::kTuple, .items = pop_to_mark()});
      return true;
    case 0x85:
      push_tuple(1);
      return true;
    case 0x86:
      push_tuple(2);
      return true;
    case 0x87:
      push_tuple(3);
      return true;
    case ']':
      push_new({.kind = Kind::kList});
      return true;
    case 'l':
      push_new({.kind = Kind::kList, .items = pop_to_mark()});
      return true;
    case 0x8f:
      push_new({.kind = Kind::kSet});
      return true;  // EMPTY_SET
    case 0x91:
      push_new({.kind = Kind::kFrozenSet, .items = pop_to_mark()});
      return true;  // FROZENSET
    case 0x90:
      append_items(pop_to_mark());
      return true;  // ADDITEMS
    case 'a':
      append_items({pop()});
      return true;
    case 'e':
      append_items(pop_to_mark());
      return true;
    case '}':
      push_new({.kind = Kind::kDict});
      return true;
    case 's': {
      const ValueId value = pop(), key = pop();
      set_items({key, value});
      return true;
    }
    case 'u':
      set_items(pop_to_mark());
      return true;
    default:
      return false;
  }
}

void Machine::step(uint8_t opcode) {
  if (marks_.size() > limits_.max_stack) fail("too many marks");
  if (step_scalar(opcode) || step_text(opcode) || step_container(opcode)) return;
  switch (opcode) {
    case 0x80:
      if (const uint64_t protocol = unsigned_int(1); protocol < 2 || protocol > 5) {
        fail(tr("pickle protocol {} is not one of 2 to 5", protocol));
      }
      return;
    case 0x95:
      unsigned_int(8);
      return;  // FRAME: a hint for buffered readers
    case '.':
      return stop();
    case '0':
      pop();
      return;
    case 'q':
      return put(unsigned_int(1));
    case 'r':
      return put(unsigned_int(4));
    case 0x94:
      return put(memo_.size());
    case 'h':
      return get(unsigned_int(1));
    case 'j':
      return get(unsigned_int(4));
    case 'c': {
      const std::string_view module = line();
      return push_global(module, line());
    }
    case 0x93:
      return stack_global();
    case 'Q':
      return persistent();
    case 'R':
      return reduce(false);
    case 0x81:
      return reduce(true);  // NEWOBJ: class, arguments
    case 'b':
      return build();
    default:
      fail(tr("opcode 0x{:02x} is not one that torch.save writes", opcode));
  }
}

}  // namespace

bool is_member(const Pickle& pickle, ValueId call) {
  const Value& value = pickle.at(call);
  if (value.kind != Kind::kCall || value.by_new) return false;
  const Value& callable = pickle.at(value.items[0]);
  const auto& arguments = pickle.at(value.items[1]).items;
  if (!is_getattr(callable.text, callable.name) || arguments.size() != 2) return false;
  const Value &of = pickle.at(arguments[0]), &name = pickle.at(arguments[1]);
  return of.kind == Kind::kGlobal && name.kind == Kind::kString && is_member_name(name.text);
}

ValueId dict_get(const Pickle& pickle, ValueId dict, std::string_view key) {
  if (dict == kNoValue || pickle.at(dict).kind != Kind::kDict) return kNoValue;
  const auto& items = pickle.at(dict).items;
  for (size_t i = 0; i + 1 < items.size(); i += 2) {
    const Value& name = pickle.at(items[i]);
    if (name.kind == Kind::kString && name.text == key) return items[i + 1];
  }
  return kNoValue;
}

Pickle read_pickle(std::span<const std::byte> bytes, const std::string& origin,
                   const PickleLimits& limits) {
  return Machine(bytes, origin, limits).run();
}

}  // namespace danlu::weights::torch_file
