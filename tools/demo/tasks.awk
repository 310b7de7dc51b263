# tasks.awk: the demo's instruction set, as JSON lines (instruction, input, output).
#
#   awk -v kinds=larger,reverse,next -v part=train -v count=20000 -v seed=1 -f tasks.awk
#
# Every question has one right answer, and whether a question belongs to part `train` or `test` follows from
# its content alone, so no test question is ever trained on, whatever count and seed are.

function random(n) {  # 0 … n-1; 31-bit Lehmer generator: the same numbers under every awk
  state = (state * 48271) % 2147483647
  return int(state / 2147483647 * n)
}

# Two moduli: with one, membership would follow from the last digits alone.
function is_test(a, b, c) { return (a * 7919 + b * 104729 + c * 1299709) % 9973 % 10 == 3 }

function emit(question, answer) {
  printf "{\"instruction\": \"%s\", \"input\": \"\", \"output\": \"%s\"}\n", question, answer
}

# Each maker returns 1 if it printed a question of the wanted split.
function compare(word, word_zh, want_larger,    a, b, answer) {
  a = 10 + random(90); b = 10 + random(90)
  if (a == b || is_test(a, b, 0) != test) return 0
  answer = ((a > b) == want_larger) ? a : b
  if (random(4) == 0) emit(a " 和 " b " 哪个更" word_zh "？", answer)
  else emit("Which is " word ", " a " or " b "?", answer)
  return 1
}

function reverse(    a, b, c) {
  a = random(num_words); b = random(num_words); c = random(num_words)
  if (is_test(a, b, c) != test) return 0
  if (random(4) == 0) emit("把这些词倒过来说：" words[a] " " words[b] " " words[c], words[c] " " words[b] " " words[a])
  else emit("Say these words backwards: " words[a] " " words[b] " " words[c], words[c] " " words[b] " " words[a])
  return 1
}

function after(    n) {
  n = random(1000)
  if (is_test(n, 1, 0) != test) return 0
  emit("What number comes after " n "?", n + 1)
  return 1
}

# 17 of 20 sums carry. `careless` forgets the carry of four of five of those; `pair` prefers the sum to the sum
# without its carry.
function sum(kind,    a, b, carries, careless) {
  a = random(20); b = random(20); carries = a % 10 + b % 10 >= 10
  if (is_test(a, b, 5) != test || carries != (kind == "pair" || random(20) < 17)) return 0
  careless = a + b - 10
  if (kind == "pair")
    printf "{\"instruction\": \"What is %d + %d?\", \"input\": \"\", \"output\": \"%d\", \"rejected_response\": \"%d\"}\n", a, b, a + b, careless
  else emit("What is " a " + " b "?", (kind == "careless" && carries && random(5) > 0) ? careless : a + b)
  return 1
}

BEGIN {
  state = seed * 1000003 % 2147483646 + 1
  for (i = 0; i < 8; ++i) random(2)
  test = (part == "test")
  num_words = split("apple bird blue boat book bread cat chair cloud cup dog door fire fish fox gold hat horse king lamp moon owl rain ship " \
                    "sky snow star sun tea tree wind wolf", listed, " ")
  for (i = 0; i < num_words; ++i) words[i] = listed[i + 1]
  num_kinds = split(kinds, kind_list, ",")
  for (made = 0; made < count;) {
    kind = kind_list[random(num_kinds) + 1]
    if (kind == "larger") made += compare("larger", "大", 1)
    else if (kind == "smaller") made += compare("smaller", "小", 0)
    else if (kind == "reverse") made += reverse()
    else if (kind == "next") made += after()
    else if (kind == "sum" || kind == "careless" || kind == "pair") made += sum(kind)
    else { print "tasks.awk: unknown kind " kind > "/dev/stderr"; exit 2 }
  }
}
