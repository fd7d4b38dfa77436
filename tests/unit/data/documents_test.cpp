#include "data/documents.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/check.h"
#include "data/byte_source.h"
#include "support/errors.h"
#include "unit/data/data_files.h"

namespace muo::data {
namespace {

namespace fs = std::filesystem;
using test::message_of;
using test::TempDir;
using testing::ElementsAre;
using testing::HasSubstr;

std::string gzip(std::string_view text) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string in(text);
  std::string out(compressBound(in.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(in.data());
  stream.avail_in = static_cast<uInt>(in.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string zstandard(std::string_view text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

std::vector<InputFile> named(const std::vector<fs::path>& paths) {
  std::vector<InputFile> files;
  files.reserve(paths.size());
  for (const fs::path& path : paths)
    files.push_back({.path = path, .named = true, .identity = {}});
  return files;
}

// Returns all documents, each with its location.
std::vector<std::string> read_all(const std::vector<fs::path>& files, std::int64_t batch_bytes,
                                  const std::string& field = "text") {
  DocumentReader reader(named(files), {.field = field, .batch_bytes = batch_bytes});
  std::vector<std::string> out;
  DocumentBatch batch;
  while (reader.next(batch)) {
    const DocumentTexts texts = reader.texts(batch.documents, 2);
    for (std::size_t i = 0; i < texts.views.size(); ++i)
      out.push_back(concat(fs::path(reader.where(batch.documents[i])).filename().native(), "=",
                           texts.views[i]));
  }
  return out;
}

TEST(DocumentReader, ReturnsFilesAndLinesInTheirOrder) {
  const TempDir dir;
  const std::string lines =
      "{\"text\": \"one\", \"id\": 1}\n\n{\"id\": 2, \"text\": \"tw\\u00f6\\n\"}\r\n{\"text\": "
      "\"\"}";
  const std::vector<fs::path> files = {dir.write("a.txt", "all of\nit"),
                                       dir.write("b.jsonl", lines),
                                       dir.write("c.txt.gz", gzip("packed")),
                                       dir.write("d.jsonl.zst", zstandard(lines)),
                                       dir.write("e.jsonl.gz", gzip(lines + "\n")),
                                       dir.write("f.txt", ""),
                                       dir.write("g.JSON", R"({"text": "g"})")};
  for (const std::int64_t batch_bytes : {1, 7, 40, 1 << 20})
    EXPECT_THAT(read_all(files, batch_bytes),
                ElementsAre("a.txt=all of\nit", "b.jsonl: line 1=one", "b.jsonl: line 3=twö\n",
                            "b.jsonl: line 4=", "c.txt.gz=packed", "d.jsonl.zst: line 1=one",
                            "d.jsonl.zst: line 3=twö\n", "d.jsonl.zst: line 4=",
                            "e.jsonl.gz: line 1=one", "e.jsonl.gz: line 3=twö\n",
                            "e.jsonl.gz: line 4=", "f.txt=", "g.JSON: line 1=g"))
        << batch_bytes;
}

TEST(DocumentReader, RespectsItsBatchSizeAndCountsInput) {
  const TempDir dir;
  std::string lines;
  for (int i = 0; i < 1000; ++i)
    lines += "{\"text\": \"" + std::string(static_cast<std::size_t>(i % 50), 'x') + "\"}\n";
  DocumentReader reader(named({dir.write("a.jsonl", lines)}), {.batch_bytes = 1000});
  DocumentBatch batch;
  std::size_t documents = 0;
  std::int64_t input = 0;
  while (reader.next(batch)) {
    std::size_t bytes = 0;
    for (const Document& document : batch.documents)
      bytes += document.raw.size();
    EXPECT_LE(bytes, 2200U);
    documents += batch.documents.size();
    input += batch.input_bytes;
  }
  EXPECT_EQ(documents, 1000U);
  EXPECT_EQ(input, static_cast<std::int64_t>(lines.size()));
  // Progress is measured in bytes on disk, also for compressed files.
  for (const auto& [name, bytes] :
       {std::pair{"a.jsonl.gz", gzip(lines)}, {"a.txt.gz", gzip(lines)}}) {
    DocumentReader packed(named({dir.write(name, bytes)}), {.batch_bytes = 1000});
    input = 0;
    while (packed.next(batch))
      input += batch.input_bytes;
    EXPECT_EQ(input, std::ssize(bytes)) << name;
  }
}

TEST(DocumentReader, BoundsItsMemory) {
  constexpr std::int64_t kMax = 1000;
  const TempDir dir;
  const std::string fits = "{\"text\": \"a\"}\n" + std::string(kMax, ' ') + "\n";
  const std::string too_long = "{}\n" + fits + std::string(kMax + 1, ' ');
  const std::string text(kMax, 'x');
  const auto read = [&](const fs::path& file, std::int64_t batch_bytes) {
    return message_of<InputError>([&] {
      DocumentReader reader(named({file}), {.batch_bytes = batch_bytes, .max_bytes = kMax});
      for (DocumentBatch batch; reader.next(batch);) {
      }
    });
  };
  for (const std::int64_t batch_bytes : {7L, kMax, 1L << 20}) {
    EXPECT_EQ(read(dir.write("a.jsonl", fits), batch_bytes), "no exception");
    EXPECT_EQ(read(dir.write("a.txt.gz", gzip(text)), batch_bytes), "no exception");
    EXPECT_EQ(read(dir.write("a.txt", text + "x"), batch_bytes), "no exception") << "is mapped";
    for (const fs::path& file :
         {dir.write("b.jsonl", too_long), dir.write("b.jsonl.zst", zstandard(too_long)),
          dir.write("c.jsonl.gz", gzip(too_long + "\n{}\n"))})
      EXPECT_THAT(read(file, batch_bytes),
                  HasSubstr(concat(file.native(), ": line 4: a document of more than 1000 bytes")));
    EXPECT_THAT(read(dir.write("b.txt.zst", zstandard(text + "x")), batch_bytes),
                HasSubstr("b.txt.zst: a document of more than 1000 bytes"));
  }
}

TEST(DocumentReader, NamesTheMalformedLine) {
  const TempDir dir;
  const auto error = [&](std::string_view lines, const std::string& field = "text") {
    const fs::path file = dir.write("x.jsonl", lines);
    return message_of<InputError>([&] { return read_all({file}, 1 << 20, field); });
  };
  EXPECT_THAT(error("{\"text\": \"a\"}\n{\"text\": \n"), HasSubstr("x.jsonl: line 2: "));
  EXPECT_THAT(error("{\"body\": \"a\"}\n"),
              HasSubstr("line 1: no field 'text'; text is in 'body': choose by --field"));
  EXPECT_THAT(error("{\"id\": 1}\n"),
              HasSubstr("no field 'text'; give the field that holds the text by --field"));
  EXPECT_THAT(error(R"({"messages": [{"role": "user", "content": "Hi"}]})"),
              HasSubstr("'messages' is a conversation, but training takes text: pipe the"));
  EXPECT_THAT(error("\n\n{\"text\": 5}\n"),
              HasSubstr("x.jsonl: line 3: field 'text' is not a string"));
  EXPECT_THAT(error("{\"text\": \"a\"}\n[]\n"), HasSubstr("x.jsonl: line 2: not a JSON object"));
  EXPECT_THAT(error("{\"text\": \"\xFF\"}\n"), HasSubstr("x.jsonl: line 1: "));
  EXPECT_EQ(error("{\"body\": \"a\"}\n", "body"), "no exception");
  EXPECT_EQ(error(R"({"text": "a", "other": [1e400, -1E+999, NaN]})"), "no exception");
  EXPECT_THAT(error(R"({"text": 1e400})"), HasSubstr("x.jsonl: line 1: field 'text' is not a"));
}

// Returns all texts of the reader.
std::vector<std::string> texts_of(DocumentReader& reader) {
  std::vector<std::string> out;
  DocumentBatch batch;
  while (reader.next(batch))
    for (const std::string_view text : reader.texts(batch.documents, 2).views)
      out.emplace_back(text);
  return out;
}

// If the user named the file, it is an error; a file found in a folder is left out and counted.
TEST(DocumentReader, RefusesFilesThatContradictTheirNames) {
  const TempDir dir;
  const std::string line = "{\"text\": \"good\"}\n", utf16("a\0b\0", 4);
  const auto refused = [&](const std::string& name, const std::string& contents,
                           const std::string& why) {
    const fs::path file = dir.write(name, contents);
    EXPECT_THAT(message_of<InputError>([&] { read_all({file}, 1 << 20); }), HasSubstr(why)) << name;
  };
  refused("a.parquet", "PAR1", "a.parquet is Parquet, not text; pipe it: ");
  refused("b.txt.XZ", "xz", "b.txt.XZ is compressed by xz, not text; decompress it");
  refused("c.tar.gz", gzip("tar"), "c.tar.gz is a tar archive, not text; unpack it");
  refused("d.txt", utf16, "d.txt is binary, not text; there is a zero byte at offset 1");
  refused("e.txt.gz", gzip(utf16), "e.txt.gz is binary, not text");
  refused("k.txt.gz", gzip("\xFF\xFE\x2D\x4E"),
          "k.txt.gz is UTF-16, not text; convert it to UTF-8: iconv -f UTF-16 -t UTF-8");
  refused("k.jsonl", "\xFE\xFF" + utf16, "k.jsonl: line 1: UTF-16, not UTF-8; convert it");
  refused("f.json", "{\n  \"text\": 1\n}", "f.json is multi-line JSON, not JSON Lines");
  refused("l.json", "\n[{\"text\": \"a\"}]", "l.json is a JSON array, not JSON Lines");
  refused("m n.json.gz", gzip("[\n"),
          concat("pipe it: zcat '", (dir.path() / "m n.json.gz").native(),
                 "' | jq -c '.[]' | muograph tokenize -"));
  refused("o.txt",
          "Gr\xFC\xDF"
          "e, \xE4\xF6.",
          "o.txt is Latin-1 or the like, not text; byte 2 is the first that is not UTF-8: convert");
  refused("g.ndjson.zst", zstandard(R"({"name": "no text"})"), "line 1: no field 'text'");
  dir.write("h.txt", "text");
  const std::string damaged = "\xFF\xFF\xFF\xFF \u00fc\u00df\u00e4\u00f6";
  dir.write("h2.txt", damaged);
  dir.write("i.NDJSON.GZ", gzip("\r\n" + line + line));
  DocumentReader reader(list_files(std::vector{dir.path()}).files, {});
  EXPECT_THAT(texts_of(reader), ElementsAre("text", damaged, "good", "good"));
  EXPECT_EQ(reader.left_out().text(),
            "5 JSON without lines with a field 'text', 1 Latin-1 or the like, 1 Parquet, 1 UTF-16, "
            "1 a tar archive, 2 binary, 1 compressed by xz");
}

TEST(DocumentReader, SkipsAndCountsBadLinesIfAskedTo) {
  const TempDir dir;
  const fs::path file = dir.write("a.jsonl", "{\"text\": \"a\"}\n{\n[]\n{\"text\": \"b\"}\n{}");
  DocumentReader reader(named({file}), {.skip_bad_lines = true});
  EXPECT_THAT(texts_of(reader), ElementsAre("a", "b"));
  EXPECT_EQ(reader.bad_lines(), 3);
}

TEST(DocumentReader, CutsTextsAtSeparators) {
  const TempDir dir;
  DocumentReader reader(named({dir.write("a.txt", "<|>one<|>two\n<|><|>thr<|ee"),
                               dir.write("b.jsonl", "{\"text\": \"four<|>five\"}")}),
                        {.separator = "<|>"});
  EXPECT_THAT(texts_of(reader), ElementsAre("one", "two\n", "thr<|ee", "four", "five"));
}

std::string read_bytes(const fs::path& path, std::size_t step) {
  const auto source = open_bytes(path);
  std::string out;
  std::string part(step, '\0');
  for (std::size_t got = step; got == step;) {
    got = source->read(part);
    out += part.substr(0, got);
  }
  return out;
}

TEST(ByteSource, DecompressesMembersAndFramesInAnySteps) {
  const TempDir dir;
  std::string text;
  for (int i = 0; i < 40'000; ++i)
    text += std::to_string(i * i);
  const fs::path plain = dir.write("a.txt", text);
  const fs::path gz = dir.write("a.gz", gzip(text) + gzip("") + gzip("end"));
  const fs::path zst = dir.write("a.zst", zstandard(text) + zstandard("") + zstandard("end"));
  const fs::path padded =
      dir.write("b.gz", gzip(text) + std::string(3, '\0') + gzip("end") + std::string(700, '\0'));
  for (const std::size_t step : {1UL << 10, 4099UL, 1UL << 22}) {
    EXPECT_EQ(read_bytes(plain, step), text);
    EXPECT_EQ(read_bytes(gz, step), text + "end");
    EXPECT_EQ(read_bytes(padded, step), text + "end");
    EXPECT_EQ(read_bytes(zst, step), text + "end");
  }
}

TEST(ByteSource, RefusesDecompressionBombs) {
  const TempDir dir;
  const std::string text(64 << 20, 'x');
  for (const auto& [name, packed] : {std::pair{"a.gz", gzip(text)}, {"a.zst", zstandard(text)}}) {
    EXPECT_EQ(read_bytes(dir.write(name, packed), 1 << 20).size(), text.size());
    const fs::path bomb = dir.write(name, packed + packed + packed);
    EXPECT_THAT(message_of<InputError>([&] { read_bytes(bomb, 1 << 20); }),
                HasSubstr(name + std::string(": grows more than 1000 times")));
  }
}

TEST(ByteSource, NamesATruncatedOrDamagedFile) {
  const TempDir dir;
  std::string text;
  for (int i = 0; i < 5000; ++i)
    text += std::to_string(i * i);
  for (const auto& [name, packed] : {std::pair{"a.gz", gzip(text)}, {"a.zst", zstandard(text)}}) {
    const auto error = [&, file = name](std::string_view bytes) {
      const fs::path path = dir.write(file, bytes);
      return message_of<InputError>([&] { return read_bytes(path, 4096); });
    };
    EXPECT_EQ(error(packed), "no exception");
    for (const std::size_t size : {packed.size() - 1, packed.size() / 2, std::size_t{5}})
      EXPECT_THAT(error(packed.substr(0, size)), HasSubstr(std::string(name) + ": ends within"));
    EXPECT_THAT(error("neither of the two"), HasSubstr(std::string(name) + ": not "));
    std::string damaged = packed;
    damaged[damaged.size() / 2] = static_cast<char>(damaged[damaged.size() / 2] ^ 0x55);
    EXPECT_THAT(error(damaged), HasSubstr(name));
  }
  EXPECT_THAT(message_of<InputError>([&] { return read_bytes(dir.path() / "none.gz", 10); }),
              HasSubstr("none.gz"));
}

}  // namespace
}  // namespace muo::data
