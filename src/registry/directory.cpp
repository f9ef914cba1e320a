#include "directory.h"

#include <algorithm>
#include <cstddef>

#include "lmtp/base/text.h"

namespace lmtp::registry {

bool LoadState::raise(int to) {
  int before = percent.load();
  while (to > before && !percent.compare_exchange_weak(before, to)) {
  }
  return to > before;
}

const engine::ModelLimits* ModelEntry::limits() const {
  if (served == nullptr) return nullptr;
  return sized ? &served->limits : &limits_at_most;
}

ModelStatus ModelEntry::status(bool stopping) const {
  ModelStatus status;
  status.state = stopping ? ModelState::kStopping : ModelState::kLoading;
  status.progress_percent = load->percent;
  status.description.name = name;
  if (served != nullptr) {
    status.description = served->description;
    status.limits = served->limits;
  } else if (load->downloads) {
    status.download = DownloadState{load->bytes_done, load->bytes_total};
  }
  if (texts != nullptr) {
    status.answer_end_ids = texts->answer_end_ids;
    status.reply_layout = texts->reply_layout;
    if (texts->note) status.description.notes.push_back(*texts->note);
  }
  for (const ServedAdapter& one : adapters) status.adapters.push_back(one.source);
  if (route != nullptr) {
    status.stats = route->engine().stats();
    if (!stopping && !status.stats.stopped) status.state = ModelState::kReady;
    return status;
  }
  status.state = ModelState::kLoading;
  if (counters != nullptr) static_cast<engine::EngineCounters&>(status.stats) = *counters;
  status.stats.num_waiting = load->num_waiting;
  return status;
}

engine::ModelLimits limits_at_most(const ServedModel& served) {
  engine::ModelLimits most = served.limits;
  most.context_length = std::max(most.context_length, served.description.trained_context_length);
  return most;
}

Directory::Meaning Directory::find(const std::string& name) const {
  if (name.empty()) return find_default();
  if (const auto found = names.find(name); found != names.end()) return found->second;
  if (!is_auto && is_any_model(name)) return find_default();
  if (!is_auto) return Refusal{unknown_name(name), true};
  if (has_control_character(name)) {
    return Refusal{
        {ErrorCode::kInvalid, "model: holds a control character; allowed are names and folders"},
        true};
  }
  return nullptr;
}

// Before the model is found it is not known which adapters it has.
bool Directory::renames(const std::string& name, const ModelEntry& entry) const {
  if (name.empty()) return false;
  return is_any_model(name) ? !is_auto && entry.served != nullptr : hides_path;
}

Directory::Meaning Directory::find_default() const {
  if (!is_auto) {
    if (!entries.empty()) return entries.front();
    return Refusal{unknown_name(only_name), true};
  }
  const auto is_ready = [](const auto& entry) { return entry->route || entry->comes_back; };
  const auto num_ready = std::count_if(entries.begin(), entries.end(), is_ready);
  if (num_ready == 1) return *std::find_if(entries.begin(), entries.end(), is_ready);
  if (num_ready > 1) {
    return Refusal{
        {ErrorCode::kInvalid,
         "model: is missing, and several are loaded; send the name of one: " + names_ready()},
        true};
  }
  if (entries.size() == 1) return entries.front();
  if (!entries.empty() || default_name.empty()) {
    return Refusal{{ErrorCode::kInvalid,
                    std::string("model: is missing, and ") +
                        (entries.empty() ? "no model is loaded" : "several are being loaded") +
                        "; send a name, such as 'demo', a hub name or a folder, and it is loaded"},
                   true};
  }
  return find(default_name);
}

// A static server's model is there under all of its names until its loading has failed.
Error Directory::unknown_name(const std::string& name) const {
  if (entries.empty() && !only_failure.empty()) {
    return Error{ErrorCode::kNotFound, "model: " + only_failure};
  }
  return Error{ErrorCode::kNotFound, "model: " + quoted_name(name) +
                                         " is not served here, allowed is '" + only_name +
                                         "' (or leave it out)"};
}

std::string Directory::names_ready() const {
  std::string out;
  for (const auto& entry : entries) {
    if (entry->route == nullptr && !entry->comes_back) continue;
    out += (out.empty() ? "" : ", ") + quoted_name(entry->name);
  }
  return out;
}

}  // namespace lmtp::registry
