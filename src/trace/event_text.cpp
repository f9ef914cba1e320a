#include "event_text.h"

#include <algorithm>
#include <charconv>

#include "lmtp/base/json.h"

namespace lmtp::trace {
namespace {

constexpr int kThread = 1;  // the only one of each process

void append_number(std::int64_t value, std::string& out) {
  char text[24];
  out.append(text, std::to_chars(text, text + sizeof(text), value).ptr);
}

// Microseconds, with all digits of nanoseconds: what touches in time touches in the file.
void append_time(const char* name, std::chrono::nanoseconds time, std::string& out) {
  const std::int64_t ns = std::max<std::int64_t>(time.count(), 0);
  out += ",\"";
  out += name;
  out += "\":";
  append_number(ns / 1000, out);
  const std::int64_t rest = ns % 1000;
  const char digits[] = {'.', static_cast<char>('0' + rest / 100),
                         static_cast<char>('0' + rest / 10 % 10),
                         static_cast<char>('0' + rest % 10)};
  out.append(digits, sizeof(digits));
}

void append_key(std::string_view name, std::string& out) {
  if (out.back() != '{') out += ',';
  out += '"';
  out += name;
  out += "\":";
}

void end_with_arguments(const Record& record, std::string& out) {
  out += ",\"args\":{";
  for (std::size_t i = 0; i < record.num_numbers; ++i) {
    append_key(record.numbers[i].name, out);
    append_number(record.numbers[i].value, out);
  }
  if (record.text_name[0] != '\0') {
    append_key(record.text_name, out);
    append_json_string(record.text, out);
  }
  out += "}}";
}

void append_metadata(const char* what, int process, std::string_view name, std::string& out) {
  out += ",\n{\"name\":\"";
  out += what;
  out += R"(","ph":"M","pid":)";
  append_number(process, out);
  out += ",\"tid\":";
  append_number(kThread, out);
  out += R"(,"args":{"name":)";
  append_json_string(name, out);
  out += "}}";
}

}  // namespace

void EventText::begin(const Record& record, char phase, Clock::time_point at,
                      std::string& out) const {
  out += ",\n{\"name\":\"";
  out += record.name;
  out += R"(","ph":")";
  out += phase;
  out += '"';
  if (record.kind != Record::Kind::kSlice) {
    out += R"(,"cat":")";
    out += record.category;
    out += R"(","id":")";
    append_number(static_cast<std::int64_t>(record.track), out);
    out += '"';
  }
  out += ",\"pid\":";
  append_number(record.process, out);
  out += ",\"tid\":";
  append_number(kThread, out);
  append_time("ts", at - origin_, out);
}

void EventText::add(const Record& record, std::string& out) {
  switch (record.kind) {
    case Record::Kind::kSlice:
      begin(record, 'X', record.begin, out);
      append_time("dur", record.end - record.begin, out);
      return end_with_arguments(record, out);
    case Record::Kind::kOpen:
      open_.insert(record.track);
      begin(record, 'b', record.begin, out);
      return end_with_arguments(record, out);
    case Record::Kind::kSpan:
      begin(record, 'b', record.begin, out);
      end_with_arguments(record, out);
      begin(record, 'e', record.end, out);
      out += '}';
      return;
    case Record::Kind::kMark:
      begin(record, 'n', record.begin, out);
      return end_with_arguments(record, out);
    case Record::Kind::kClose:
      if (open_.erase(record.track) == 0) return;
      begin(record, 'e', record.begin, out);
      return end_with_arguments(record, out);
  }
}

void EventText::add_process(int process, std::string_view name, std::string_view thread,
                            std::string& out) {
  append_metadata("process_name", process, name, out);
  append_metadata("thread_name", process, thread, out);
}

void EventText::begin_moment(const char* name, std::string& out) const {
  const Record record{.process = Trace::kServerProcess, .name = name};
  begin(record, 'i', Clock::now(), out);
  out += R"(,"s":"g","args":{)";
}

void EventText::add_moment(const char* name, const char* argument, std::string_view text,
                           std::string& out) {
  begin_moment(name, out);
  append_key(argument, out);
  append_json_string(text, out);
  out += "}}";
}

void EventText::add_moment(const char* name, const char* argument, std::int64_t value,
                           std::string& out) {
  begin_moment(name, out);
  append_key(argument, out);
  append_number(value, out);
  out += "}}";
}

}  // namespace lmtp::trace
