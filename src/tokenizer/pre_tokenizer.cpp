#include "pre_tokenizer.h"

#include <algorithm>

#include "byte_alphabet.h"
#include "gpt2_split.h"
#include "lmtp/base/check.h"

namespace lmtp::tokenizer {

struct PreTokenizer::Run {
  PreTokenizerScratch& scratch;
  WordSink& sink;
};

void PreTokenizer::run(std::string_view text, bool at_start, PreTokenizerScratch& scratch,
                       WordSink& sink) const {
  if (scratch.texts.size() < steps_.size()) scratch.texts.resize(steps_.size());
  while (scratch.patterns.size() < steps_.size()) scratch.patterns.emplace_back();
  run_step(0, text, at_start, {scratch, sink});
}

void PreTokenizer::split_at_marks(std::string_view mark) {
  PreTokenizerStep step;
  step.kind = PreTokenizerStep::Kind::kMarkRuns;
  step.content = mark;
  steps_.push_back(std::move(step));
}

void PreTokenizer::run_step(std::size_t index, std::string_view text, bool at_start,
                            const Run& run) const {
  if (text.empty()) return;
  if (index == steps_.size()) return run.sink.take_word(text);
  const PreTokenizerStep& step = steps_[index];
  switch (step.kind) {
    case PreTokenizerStep::Kind::kGpt2Words:
      return split_gpt2_words(index, text, run);
    case PreTokenizerStep::Kind::kSplit:
      return split_text(*step.pattern, step.behavior, step.invert, text,
                        run.scratch.patterns[index], [&](std::size_t begin, std::size_t end) {
                          run_step(index + 1, text.substr(begin, end - begin),
                                   at_start && begin == 0, run);
                        });
    case PreTokenizerStep::Kind::kReplace:
      return replace_spaces(index, text, at_start, run);
    case PreTokenizerStep::Kind::kPrepend:
      if (text.starts_with(step.content) || (step.first_only && !at_start)) break;
      run.scratch.texts[index].assign(step.content).append(text);
      return run_step(index + 1, run.scratch.texts[index], at_start, run);
    case PreTokenizerStep::Kind::kSpellBytes:
    case PreTokenizerStep::Kind::kUnspellBytes: {
      std::string& out = run.scratch.texts[index];
      out.clear();
      if (step.kind == PreTokenizerStep::Kind::kSpellBytes) {
        append_spelling(text, out);
      } else {
        LMTP_CHECK(append_spelt_bytes(text, out));  // no step since kSpellBytes adds characters
      }
      return run_step(index + 1, out, at_start, run);
    }
    case PreTokenizerStep::Kind::kMarkStarts:
    case PreTokenizerStep::Kind::kMarkRuns:
      return split_starts(index, text, at_start, run);
  }
  run_step(index + 1, text, at_start, run);
}

void PreTokenizer::split_gpt2_words(std::size_t index, std::string_view text,
                                    const Run& run) const {
  const bool is_last = index + 1 == steps_.size();
  for (std::size_t pos = 0; pos < text.size();) {
    const std::size_t end = gpt2_word_end(classes_, text, pos);
    const std::string_view word = text.substr(pos, end - pos);
    if (is_last) {
      run.sink.take_word(word);
    } else {
      run_step(index + 1, word, false, run);
    }
    pos = end;
  }
}

void PreTokenizer::replace_spaces(std::size_t index, std::string_view text, bool at_start,
                                  const Run& run) const {
  std::string& out = run.scratch.texts[index];
  out.clear();
  for (std::size_t pos = 0; pos < text.size();) {
    const std::size_t end = std::min(text.find(' ', pos), text.size());
    out.append(text.substr(pos, end - pos));
    if (end < text.size()) out.append(steps_[index].content);
    pos = end + 1;
  }
  run_step(index + 1, out, at_start, run);
}

void PreTokenizer::split_starts(std::size_t index, std::string_view text, bool at_start,
                                const Run& run) const {
  const std::string& mark = steps_[index].content;
  const bool runs = steps_[index].kind == PreTokenizerStep::Kind::kMarkRuns;
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t from = begin;
    if (runs) {
      while (text.substr(from).starts_with(mark)) from += mark.size();
    } else if (text.substr(from).starts_with(mark)) {
      from += mark.size();
    }
    const std::size_t end = std::min(text.find(mark, from), text.size());
    run_step(index + 1, text.substr(begin, end - begin), at_start && begin == 0, run);
    begin = end;
  }
}

}  // namespace lmtp::tokenizer
