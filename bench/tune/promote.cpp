// hipnorm-tune promote and status: from journals to tables, and what the tables hold.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <stdexcept>

#include "bench/tune/build_info.h"
#include "bench/tune/cell.h"
#include "bench/tune/commands.h"
#include "bench/tune/journal.h"

namespace hipnorm::tune {
namespace {

using nlohmann::json;

struct Chosen {
  SessionInfo session;
  std::map<std::string, json> results;
};

// The one session whose results are taken.
Chosen choose_session(const PromoteOptions& options) {
  std::map<std::string, Chosen> found;
  for (const std::string& path : options.journals) {
    const Journal journal = Journal::read(path);
    for (const SessionInfo& session : journal.sessions) {
      const auto results = journal.results.find(session.id);
      if (results == journal.results.end()) continue;
      Chosen& chosen = found[session.id];
      const bool dirty = chosen.session.dirty || session.dirty;
      chosen.session = session;
      chosen.session.dirty = dirty;
      for (const auto& [cell, line] : results->second) chosen.results[cell] = line;
    }
  }
  if (found.empty()) throw std::invalid_argument("the journals hold no result");
  if (!options.session.empty()) {
    const auto named = found.find(options.session);
    if (named == found.end()) {
      throw std::invalid_argument("the journals hold no result of session " + options.session);
    }
    return named->second;
  }
  if (found.size() > 1) {
    std::string list;
    for (const auto& [id, chosen] : found) {
      list += fmt::format("\n  {}: {} on {} ({}), commit {}, {} cells", id, chosen.session.started,
                          chosen.session.name, chosen.session.arch, chosen.session.commit,
                          chosen.results.size());
    }
    throw std::invalid_argument(
        "the journals hold sessions of different devices, builds or methods, which are not mixed; "
        "--session names one of:" +
        list);
  }
  return found.begin()->second;
}

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::invalid_argument(path + " cannot be read");
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// Replaces the file by a rename: whoever reads it sees the old or the new one, whole.
void replace_file(const std::string& path, const std::string& text) {
  const std::string temporary = fmt::format("{}.{}.tmp", path, getpid());
  const auto fail = [&](const char* what) {
    const int error = errno;
    unlink(temporary.c_str());
    throw std::runtime_error(fmt::format("{}: {}: {}", path, what, std::strerror(error)));
  };
  const int file = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) fail("cannot be written");
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t n = ::write(file, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      close(file);
      fail("cannot be written");
    }
    done += static_cast<std::size_t>(n);
  }
  const bool stored = fsync(file) == 0;
  if (close(file) != 0 || !stored) fail("cannot be written");
  if (rename(temporary.c_str(), path.c_str()) != 0) fail("cannot be replaced");
}

constexpr std::string_view kMethodLine = "method ";

}  // namespace

int promote(const PromoteOptions& options) {
  const Chosen chosen = choose_session(options);
  const SessionInfo& session = chosen.session;
  if (session.dirty && !options.allow_dirty) {
    throw std::invalid_argument(fmt::format(
        "session {} was measured on a tree with changes that no commit holds (commit {}); commit, "
        "sweep again, or --allow-dirty for a table of your own",
        session.id, session.commit));
  }
  if (session.commit.empty() && !options.allow_dirty) {
    throw std::invalid_argument(fmt::format(
        "session {} was measured by a program that was built outside of git, from sources that "
        "nobody can name; build from a checkout, sweep again, or --allow-dirty for a table of your "
        "own",
        session.id));
  }
  if (session.build != build_hash() || session.method != kMethod) {
    throw std::invalid_argument(fmt::format(
        "session {} measured another build's kernels, or by another method (its {}, this program's "
        "{}); promote with the program that swept",
        session.id, session.method, kMethod));
  }
  const std::string output = !options.output.empty()
                                 ? options.output
                                 : fmt::format("{}/configs/{}.csv", source_root(), session.arch);

  std::map<TableKey, TableRow> rows;
  std::vector<std::string> provenance;
  if (std::filesystem::exists(output)) {
    const Table old(read_file(output), output);
    if (old.arch() != session.arch) {
      throw std::invalid_argument(fmt::format("{} is a table of {}, but the session measured {}",
                                              output, old.arch(), session.arch));
    }
    if (!old.complaints().empty()) {
      throw std::invalid_argument("the old table has rows that cannot be read: " +
                                  old.complaints().front());
    }
    for (const std::string& line : old.provenance()) {
      if (line.starts_with(kMethodLine)) {
        if (line != fmt::format("{}{}", kMethodLine, session.method)) {
          throw std::invalid_argument(
              fmt::format("{} was measured by {}, the session by method {}: they are not mixed",
                          output, line, session.method));
        }
      } else if (!line.starts_with("session " + session.id)) {
        provenance.push_back(line);
      }
    }
    for (const TableRow& row : old.rows()) rows[row.key] = row;
  }

  std::size_t untried = 0;
  for (const auto& [cell, line] : chosen.results) {
    // The budget ended before anything was tried beside the default: that is no result.
    if (line.at("tried").get<std::size_t>() == 0) {
      ++untried;
      continue;
    }
    TableRow row;
    row.key = parse_cell(cell);
    PartialConfig partial;
    std::string error;
    if (!parse_config(line.at("config").get<std::string>(), partial, error)) {
      throw std::invalid_argument(fmt::format("{}: {}", cell, error));
    }
    row.config = partial.config;
    row.time_us = line.at("time_us");
    row.default_us = line.at("default_us");
    row.compute_units = session.compute_units;
    row.sources = sources_hash(info(row.config.variant));
    rows[row.key] = row;
  }

  std::string text = table_header(session.arch);
  text += fmt::format("# {}{}\n", kMethodLine, session.method);
  for (const std::string& line : provenance) text += "# " + line + '\n';
  text += fmt::format("# session {}: {} cells on {}, {} compute units, {}, commit {}{}, {}\n",
                      session.id, chosen.results.size() - untried, session.name,
                      session.compute_units, session.driver.empty() ? "no driver" : session.driver,
                      session.commit.empty() ? "unknown" : session.commit,
                      session.dirty ? " with changes" : "", session.started);
  text += std::string(kTableColumns) + '\n';
  for (const auto& [key, row] : rows) text += to_string(row) + '\n';
  const Table check(text, output);
  if (!check.complaints().empty()) throw std::logic_error(check.complaints().front());
  replace_file(output, text);
  fmt::print("{}: {} rows, {} of them from session {}.\n", output, rows.size(),
             chosen.results.size() - untried, session.id);
  if (untried > 0) {
    fmt::print("{} cells were left out: nothing was tried there beside the default.\n", untried);
  }
  return 0;
}

int status(const std::string& path) {
  std::vector<Table> own;
  std::vector<const Table*> list;
  if (path.empty()) {
    list.assign(tables().begin(), tables().end());
  } else {
    own.emplace_back(read_file(path), path);
    list.push_back(&own.front());
  }
  if (list.empty()) fmt::print("No tables: every call runs the default.\n");
  bool good = true;
  for (const Table* table : list) {
    std::size_t stale = 0, slower = 0;
    for (const TableRow& row : table->rows()) {
      if (row.sources != sources_hash(info(row.config.variant))) ++stale;
      if (row.time_us > row.default_us) ++slower;
    }
    fmt::print(
        "{} ({}): {} rows, {} stale, {} slower than the default when measured, {} unreadable\n",
        table->file(), table->arch(), table->rows().size(), stale, slower,
        table->complaints().size());
    for (const std::string& line : table->provenance()) fmt::print("  {}\n", line);
    for (const std::string& line : table->complaints()) fmt::print("  {}\n", line);
    for (const TableRow& row : table->rows()) {
      if (row.sources != sources_hash(info(row.config.variant))) {
        fmt::print("  stale: {}  {} (its kernels have changed since)\n", to_string(row.key),
                   to_string(row.config));
      }
    }
    good = good && stale == 0 && table->complaints().empty();
  }
  return good ? 0 : 1;
}

}  // namespace hipnorm::tune
