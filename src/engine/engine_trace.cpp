#include "engine_trace.h"

namespace lmtp::engine {
namespace {

using trace::Record;

constexpr std::size_t kRecordsMax = 1024;  // more are flushed

const char* name_of_row(const scheduler::Sequence& sequence, const scheduler::PlanRow& row) {
  if (sequence.kind == RequestKind::kScore) return "score";
  return row.first_position < sequence.num_prompt ? "prefill" : "decode";
}

std::int64_t since(std::int64_t& last, std::int64_t now) { return now - std::exchange(last, now); }

}  // namespace

EngineTrace::EngineTrace(std::shared_ptr<trace::Trace> trace, std::string_view model,
                         int max_streams, std::int64_t num_preemptions)
    : trace_(std::move(trace)), num_preemptions_(num_preemptions) {
  if (!is_on()) return;
  process_ = trace_->add_process(model, "engine");
  records_.reserve(kRecordsMax);
  // Of each stream a delivery and an end.
  undelivered_.reserve(static_cast<std::size_t>(max_streams) * 2);
}

void EngineTrace::push(const Record& record) {
  if (records_.size() >= kRecordsMax) flush();
  records_.push_back(record);
}

void EngineTrace::push_undelivered(const Record& record) {
  if (undelivered_.size() < undelivered_.capacity()) {
    undelivered_.push_back(record);
  } else {
    trace_->add_dropped(1);
  }
}

void EngineTrace::flush() {
  trace_->add(records_);
  records_.clear();
}

Record EngineTrace::of_stream(const StreamTrace& stream, Record::Kind kind,
                              const char* name) const {
  return {.kind = kind,
          .process = process_,
          .track = stream.track,
          .category = "request",
          .name = name};
}

StreamTrace EngineTrace::begin(const StreamKey& key, RequestKind kind, int num_prompt,
                               int max_tokens, Clock::time_point arrival) {
  if (!is_on()) return {};
  const StreamTrace stream{.track = trace_->next_track()};
  Record record = of_stream(stream, Record::Kind::kOpen, "request");
  record.begin = arrival;
  record.text_name = "kind";
  record.text = kind == RequestKind::kScore   ? "score"
                : kind == RequestKind::kEmbed ? "embed"
                                              : "generate";
  push(record.with("connection", static_cast<std::int64_t>(key.connection))
           .with("stream", key.stream)
           .with("sample", key.sample)
           .with("prompt_tokens", num_prompt)
           .with("max_tokens", max_tokens));
  return stream;
}

void EngineTrace::admitted(StreamTrace& stream, int num_cached, int num_missing,
                           Clock::time_point arrival, Clock::time_point now) {
  stream.waits = false;
  if (stream.track == 0 || !is_on()) return;
  Record queue = of_stream(stream, Record::Kind::kSpan, "queue");
  queue.begin = arrival;
  queue.end = now;
  push(queue);
  Record match = of_stream(stream, Record::Kind::kMark, "match");
  match.begin = now;
  push(match.with("cached_tokens", num_cached).with("missing_tokens", num_missing));
}

void EngineTrace::row(const StreamTrace& stream, const scheduler::Sequence& sequence,
                      const scheduler::PlanRow& row, bool skipped, Clock::time_point begin,
                      Clock::time_point end) {
  if (stream.track == 0 || !is_on()) return;
  Record record = of_stream(stream, Record::Kind::kSpan, name_of_row(sequence, row));
  record.begin = begin;
  record.end = end;
  record.with("step", step_.numbers[0].value)
      .with("first", row.first_position)
      .with("tokens", row.num_tokens)
      .with("logits", row.num_logits);
  if (row.num_drafts > 0) record.with("drafts", row.num_drafts);
  if (skipped) record.with("late_mask", 1);
  push(record);
}

void EngineTrace::step(const TracedStep& step) {
  step_ = {.process = process_, .name = "step"};
  const scheduler::StepPlan& plan = *step.plan;
  int num_drawn = 0;
  for (const scheduler::PlanRow& row : plan.rows) num_drawn += row.draws() ? 1 : 0;
  step_.with("step", step.number)
      .with("rows", static_cast<std::int64_t>(plan.rows.size()))
      .with("tokens", plan.num_tokens)
      .with("drafts", static_cast<std::int64_t>(plan.drafts.size()))
      .with("drawn", num_drawn)
      .with("admitted", plan.num_admissions)
      .with("preempted", since(num_preemptions_, step.num_preemptions))
      .with("copies", static_cast<std::int64_t>(plan.copies.size()))
      .with("blocks_free", step.num_blocks_free)
      .with("running", step.num_running)
      .with("waiting", step.num_waiting)
      .with("masks", since(num_masks_, step.num_masks))
      .with("late_masks", since(num_late_masks_, step.num_late_masks))
      .with("ahead", step.is_ahead ? 1 : 0);
  if (step.failed) {
    step_.text_name = "outcome";
    step_.text = "failed";
  }
}

void EngineTrace::slice(const char* name, Clock::time_point begin) {
  push({.process = process_, .name = name, .begin = begin, .end = Clock::now()});
}

void EngineTrace::end_turn(Clock::time_point begin) {
  if (step_.num_numbers == 0) return;
  step_.begin = begin;
  step_.end = Clock::now();
  push(step_);
  step_.num_numbers = 0;
}

// The tokens that a step gives to a stream come one after the other.
void EngineTrace::token(const StreamTrace& stream) {
  if (stream.track == 0 || !is_on()) return;
  if (!undelivered_.empty() && undelivered_.back().track == stream.track) {
    ++undelivered_.back().numbers[0].value;
    return;
  }
  push_undelivered(of_stream(stream, Record::Kind::kMark, "send").with("tokens", 1));
}

void EngineTrace::end(const StreamTrace& stream, std::string_view outcome,
                      Clock::time_point arrival) {
  if (stream.track == 0 || !is_on()) return;
  if (stream.waits) {
    Record queue = of_stream(stream, Record::Kind::kSpan, "queue");
    queue.begin = arrival;
    queue.end = Clock::now();
    push(queue);
  }
  Record record = of_stream(stream, Record::Kind::kClose, "request");
  record.text_name = "outcome";
  record.text = outcome;
  push_undelivered(record);
}

void EngineTrace::delivered() {
  if (trace_ == nullptr) return;
  if (!undelivered_.empty()) {
    const Clock::time_point now = Clock::now();
    for (Record& record : undelivered_) {
      record.begin = now;
      push(record);
    }
    undelivered_.clear();
  }
  flush();
}

}  // namespace lmtp::engine
