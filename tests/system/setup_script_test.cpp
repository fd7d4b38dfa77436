// Checks what scripts/setup.sh installs, unpacks, downloads or asks for on machines whose apt-get,
// sudo and Python are short shell scripts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "support/files.h"
#include "system/script_clone.h"

namespace muo {
namespace {

namespace fs = std::filesystem;
using test::Outcome;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr const char* kLibraries =
    "libdnnl-dev libcli11-dev nlohmann-json3-dev libtomlplusplus-dev libfmt-dev libpcre2-dev "
    "libyaml-dev zlib1g-dev libzstd-dev libcpp-httplib-dev libsentencepiece-dev libonig-dev "
    "libutf8proc-dev libsodium-dev libgtest-dev libgmock-dev libbenchmark-dev";

// Root installs packages into bin_, with the versions of g++ and cmake given by gxx and cmake;
// other users download them, and dpkg-deb unpacks them. python3-pip includes python3.
constexpr const char* kAptGet = R"sh(
echo apt-get "$@" >>$machine/log
cache= packages=() what=
for argument; do
  case $argument in
    Dir::Cache=*) cache=${argument#*=} ;;
    install | update | --simulate) what=$argument ;;
    -* | *::*) ;;
    *) packages+=($argument) ;;
  esac
done
if [ -e $machine/broken ]; then
  if [ $what = update ]; then echo 'W: Failed to fetch http://deb/InRelease  No route to host'; exit 0; fi
  echo "E: Unable to locate package ${packages[0]}"; exit 100
fi
[ $what = install ] || exit 0
for package in ${packages[@]}; do
  if [ $package = python3-pip ]; then packages+=(python3); fi
done
for package in ${packages[@]}; do
  if [ -n "$cache" ]; then : >$cache/archives/${package}_1_amd64.deb; continue; fi
  echo "$package installed" >>$machine/installed
  case $package in
    g++-12) printf '#!/bin/bash\necho 12\n' >$machine/bin/$package ;;
    g++) printf "#!/bin/bash\necho $(<$machine/gxx)\n" >$machine/bin/$package ;;
    cmake) printf "#!/bin/bash\necho cmake version $(<$machine/cmake)\n" >$machine/bin/$package ;;
    ninja-build) printf '#!/bin/bash\n' >$machine/bin/ninja; chmod +x $machine/bin/ninja ;;
    python3) cp $machine/python3 $machine/bin ;;
    *) continue ;;
  esac
  if [ -e $machine/bin/$package ]; then chmod +x $machine/bin/$package; fi
done)sh";

// `libraries` is the folder of this machine's libraries, one of which is installed without headers.
constexpr const char* kDpkgDeb = R"sh(
package=${2##*/} package=${package%%_*}
echo dpkg-deb $package >>$machine/log
if [ -e $machine/damaged_$package ]; then echo 'error: unexpected end of file'; exit 2; fi
mkdir -p $3/usr/include $3/usr/bin $3$libraries
echo $package >$3/usr/include/$package
case $package in
  libfmt-dev) ln -sf libstdc++.so.6 $3$libraries/libstdc++.so ;;
  python3) cp $machine/python3 $3/usr/bin ;;
  ccache) printf '#!/bin/bash\necho ccache $LD_LIBRARY_PATH $PYTHONPATH' >$3/usr/bin/ccache; chmod +x $3/usr/bin/ccache ;;
  python3-pip) mkdir -p $3/usr/lib/python3/dist-packages/pip ;;
esac)sh";

constexpr const char* kPython = R"sh(
if [ -e $machine/pip_broken ] && [ "$3" = download ]; then echo 'ERROR: no such version'; exit 1; fi
case "$*" in
  "-m pip --version") ;;
  "-m pip download"*) echo pip $(<wanted) >>$machine/log; : >$(sed 's/==.*//' wanted)-1.whl ;;
  "-m zipfile -e ./cmake-1.whl"*)
    mkdir -p $5/cmake/data/bin $5/cmake.dist-info
    printf '#!/bin/bash\necho cmake version 3.31.10\n' >$5/cmake/data/bin/cmake ;;
  "-m zipfile -e ./ninja-1.whl"*)
    mkdir -p $5/ninja-1.data/scripts $5/ninja.dist-info
    : >$5/ninja-1.data/scripts/ninja ;;
  "-m zipfile -e ./plotly-1.whl"*)
    mkdir -p $5/plotly/package_data $5/plotly.dist-info/licenses
    : >$5/plotly/package_data/plotly.min.js ;;
  *) exit 1 ;;
esac)sh";

// An ordinary user without sudo on a machine with g++ and apt-get.
class SetupScript : public test::ScriptClone {
 protected:
  SetupScript() {
    link({"chmod", "cp", "cut", "df", "env", "find", "ln", "readlink"});
    add_command("uname", "echo x86_64");
    add_machine_command("apt-get", kAptGet);
    add_machine_command("dpkg-deb", kDpkgDeb);
    add_machine_command("dpkg-query", "cat $machine/installed");
    add_command("dpkg", "");
    set_user(1000);
    set_compiler("12");
    fs::create_directories(directory_.path() / "etc/ssl/certs");
    for (const char* empty : {"installed", "etc/ssl/certs/ca-certificates.crt"})
      write(empty, "");
    write("gxx", "12");
    write("cmake", "3.25.1");
    write_script(directory_.path() / "python3", variables() + kPython);
  }

  void add_machine_command(const std::string& name, const std::string& body) {
    add_command(name, variables() + body);
  }
  void set_user(int id) { add_command("id", "echo " + std::to_string(id)); }
  void set_compiler(const std::string& version) { add_command("g++", "echo " + version); }
  void write(const std::string& name, const std::string& text) {
    test::write_file(directory_.path() / name, text);
  }
  void remove(const std::string& name) { fs::remove(directory_.path() / name); }
  Outcome run_script(const std::string& command) {
    fs::remove(log());
    return run(command, "MUO_GPU_ROOT=" + directory_.path().string());
  }
  Outcome setup(const std::string& option = "") { return run_script("setup.sh " + option); }
  // Expects that setup has nothing to do, does nothing and prints nothing.
  void expect_silence(const std::string& option = "") {
    const Outcome again = setup(option);
    EXPECT_EQ(again.code, 0);
    EXPECT_EQ(again.out + again.err, "");
    EXPECT_EQ(done(), "");
  }
  [[nodiscard]] std::string file(const std::string& name) const {
    return test::read_file(third_party_ / name);
  }
  static long lines(const std::string& text) { return std::ranges::count(text, '\n'); }

  fs::path third_party_ = clone_ / "build/third_party", debian_ = third_party_ / "debian";

  // The folder in which the loader found a library with a version in its file name.
  static fs::path libraries() {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);)
      if (line.find("/libstdc++.so.6") != std::string::npos)
        return fs::path(line.substr(line.find('/'))).parent_path();
    ADD_FAILURE() << "/proc/self/maps names no libstdc++";
    return "/usr/lib";
  }

 private:
  [[nodiscard]] std::string variables() const {
    return "machine=" + directory_.path().string() + " libraries=" + libraries().string() + "\n";
  }
};

TEST_F(SetupScript, WithoutRootUnpacksPackagesAndFetchesCmakeOnce) {
  const Outcome run = setup();
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(run.err, "");
  EXPECT_EQ(run.out, "setup.sh: not root, and there is no sudo: fetching " +
                         std::string(kLibraries) + " python3-pip into " + debian_.string() +
                         ", cmake and ninja into " + (third_party_ / "cmake").string() + "\n");
  EXPECT_THAT(done(), HasSubstr("dpkg-deb libdnnl-dev\n"));
  EXPECT_THAT(done(), HasSubstr("pip cmake==3.31.10 --hash=sha256:"));
  EXPECT_EQ(file("debian/usr/include/libgmock-dev"), "libgmock-dev\n");
  EXPECT_FALSE(fs::exists(third_party_ / "apt"));
  EXPECT_FALSE(fs::exists(third_party_ / "cmake.new"));
  // Links of an unpacked library to the machine's file.
  const fs::path real = fs::canonical(libraries() / "libstdc++.so.6");
  const fs::path folder = debian_ / libraries().relative_path();
  for (const fs::path& name : {fs::path("libstdc++.so"), real.filename()})
    EXPECT_EQ(fs::canonical(folder / name), real) << name;
  expect_silence();
  expect_silence("--cuda");
  fs::remove(bin_ / "apt-get");
  for (const char* again : {"unpack_packages.sh libfmt-dev", "fetch_cmake.sh"}) {
    EXPECT_EQ(run_script(again).code, 0) << "as one of two calls at a time finds it";
    EXPECT_EQ(done(), "");
  }
}

TEST_F(SetupScript, EveryScriptFindsWhatWasFetched) {
  ASSERT_EQ(setup().code, 0);
  ASSERT_EQ(run_script("unpack_packages.sh ccache").code, 0);
  const std::string source = "source " + (clone_ / "scripts/path.sh").string() + "\n";
  add_command("ask", source + source + "echo $PATH; cmake; ccache; python3");
  const Outcome asked = test::run_command((bin_ / "ask").string(), "PATH=" + bin_.string());
  EXPECT_THAT(asked.out,
              StartsWith((third_party_ / "cmake/bin").string() + ":" + (debian_ / "bin").string() +
                         ":" + bin_.string() + "\ncmake version 3.31"));
  EXPECT_THAT(asked.out,
              HasSubstr("ccache " + debian_.string() + "/bin/.." + libraries().string()));
  EXPECT_THAT(asked.out, HasSubstr(debian_.string() + "/bin/../usr/lib/python3/dist-packages/"));
  EXPECT_THAT(asked.err, HasSubstr("python3: command not found"));
  for (const char* script : {"scripts/train.sh", "scripts/test.sh", "scripts/check.sh",
                             "scripts/fuzz.sh", "scripts/gpu_pack.sh", ".ci/run"})
    EXPECT_THAT(test::read_file(fs::path(test::source_directory()) / script),
                HasSubstr("\nsource scripts/path.sh\n"))
        << script;
}

TEST_F(SetupScript, PackagesThatCannotBeUnpackedAreRequested) {
  set_compiler("11");
  Outcome run = setup();
  EXPECT_EQ(run.code, 2);
  EXPECT_EQ(run.out, "");
  EXPECT_EQ(run.err,
            "setup.sh: missing: g++; not root, and there is no sudo: ask an administrator to run: "
            "apt-get update && apt-get install --yes --no-install-recommends g++\n");
  write("installed", "g++ installed\n");
  run = setup();
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, EndsWith(" g++-12\n"));
  EXPECT_EQ(done(), "");
  set_compiler("13");
  run = setup("--dev");
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, EndsWith(" python3 git\n"));
  remove("etc/ssl/certs/ca-certificates.crt");
  run = setup();
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, EndsWith(" ca-certificates\n"));
  EXPECT_EQ(done(), "");
}

TEST_F(SetupScript, AFailedDownloadIsOneLineAndTheNextRunRepairsIt) {
  write("broken", "");
  Outcome run = setup();
  EXPECT_EQ(run.code, 3);
  EXPECT_EQ(run.err, "unpack_packages.sh: apt-get cannot download " + std::string(kLibraries) +
                         " python3-pip: W: Failed to fetch http://deb/InRelease  No route to host: "
                         "repeat the command once network and disk work\n");
  remove("broken");
  write("damaged_libfmt-dev", "");
  run = setup();
  EXPECT_EQ(run.code, 3);
  EXPECT_EQ(run.err,
            "unpack_packages.sh: cannot unpack libfmt-dev_1_amd64.deb: error: unexpected end of "
            "file\n");
  EXPECT_TRUE(fs::exists(debian_ / "usr/include/libdnnl-dev")) << "as an interrupted run leaves it";
  remove("damaged_libfmt-dev");
  write("pip_broken", "");
  run = setup();
  EXPECT_EQ(run.code, 3);
  EXPECT_EQ(lines(run.err), 1);
  EXPECT_THAT(run.err, StartsWith("fetch_cmake.sh: pip could not fetch cmake 3.31.10: ERROR: no "
                                  "such version: repeat the command"));
  EXPECT_THAT(run.err, EndsWith(", or put cmake 3.25 or newer, and ninja, on PATH\n"));
  remove("pip_broken");
  run = setup();
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(done(), Not(HasSubstr("apt-get"))) << "those packages were whole";
  expect_silence();
}

TEST_F(SetupScript, PackagesOfAnotherReleaseAreReplaced) {
  ASSERT_EQ(setup().code, 0);
  const std::string list = file("debian/bin/packages");
  test::write_file(debian_ / "bin/packages", "of another\n" + list.substr(list.find('\n') + 1));
  test::write_file(debian_ / "usr/include/old", "");
  EXPECT_EQ(setup().code, 0);
  EXPECT_THAT(done(), HasSubstr("dpkg-deb libdnnl-dev\n"));
  EXPECT_THAT(list, StartsWith(file("debian/bin/packages"))) << "cmake is there, so pip is not";
  EXPECT_FALSE(fs::exists(debian_ / "usr/include/old"));
  expect_silence();
}

TEST_F(SetupScript, WithoutAptGetOnlyPythonHelps) {
  fs::remove(bin_ / "apt-get");
  Outcome run = setup();
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, StartsWith("setup.sh: missing: libdnnl-dev "));
  EXPECT_THAT(run.err, HasSubstr("; this system has no apt-get: "));
  add_command("dpkg-query", "printf '%s installed\\n' " + std::string(kLibraries));
  fs::copy_file(directory_.path() / "python3", bin_ / "python3");
  add_command("uname", "echo riscv64");
  run = setup();
  EXPECT_EQ(run.code, 3);
  EXPECT_EQ(run.err,
            "fetch_cmake.sh: there is no cmake for riscv64 here: put cmake 3.25 or newer, and "
            "ninja, on PATH\n");
  add_command("uname", "echo x86_64");
  run = setup();
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(run.out, "setup.sh: this system has no apt-get: fetching cmake and ninja into " +
                         (third_party_ / "cmake").string() + "\n");
  expect_silence();
}

TEST_F(SetupScript, SudoInstallsUnlessItWantsAPassword) {
  add_machine_command("sudo", "echo sudo \"$@\" >>$machine/log; exit 1");
  Outcome run = setup();
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.out, StartsWith("setup.sh: not root, and sudo wants a password and there is no "
                                  "terminal: fetching libdnnl-dev"));
  EXPECT_THAT(done(), StartsWith("sudo -n true\n"));
  fs::remove_all(third_party_);
  add_machine_command("sudo", "[ $1 = -n ] || { echo sudo >>$machine/log; exec \"$@\"; }");
  run = setup();
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(run.out,
            "setup.sh: installing cmake ninja-build " + std::string(kLibraries) + " python3-pip\n");
  EXPECT_THAT(done(), StartsWith("sudo\napt-get "));
  EXPECT_THAT(done(), Not(HasSubstr("download")));
  EXPECT_FALSE(fs::exists(debian_));
  EXPECT_FALSE(fs::exists(third_party_ / "cmake"));
  expect_silence();
}

// A machine like Ubuntu 22.04.
TEST_F(SetupScript, RootGetsANewerCompilerAndCmakeWhereThePackagesAreOld) {
  set_user(0);
  fs::remove(bin_ / "g++");
  write("gxx", "11");
  write("cmake", "3.22.1");
  const Outcome run = setup();
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(
      run.out,
      "setup.sh: installing g++ cmake ninja-build " + std::string(kLibraries) +
          " python3-pip\nsetup.sh: installing g++-12\nsetup.sh: fetching cmake and ninja into " +
          (third_party_ / "cmake").string() + ": 3.25 is needed, and cmake here is 3.22.1\n");
  EXPECT_FALSE(fs::exists(debian_));
  expect_silence();
  write("installed", "");
  fs::remove_all(third_party_);
  write("broken", "");
  const Outcome failed = setup();
  EXPECT_EQ(failed.code, 3);
  EXPECT_THAT(failed.err, EndsWith("setup.sh: apt-get could not install cmake " +
                                   std::string(kLibraries) + "\n"));
}

// The plotting library for reports is fetched too; if that fails, setup still succeeds.
TEST_F(SetupScript, FetchesPlotlyAndSucceedsWithoutIt) {
  set_user(0);
  write("pip_broken", "");
  Outcome run = setup();
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(lines(run.err), 2);
  EXPECT_THAT(run.err, StartsWith("fetch_plotly.sh: pip could not fetch plotly 6.9.0: ERROR: no "
                                  "such version: repeat the command"));
  EXPECT_THAT(run.err, EndsWith("\nsetup.sh: so there are no charts for muograph report\n"));
  remove("pip_broken");
  expect_silence();  // a failure is not retried for a day
  fs::remove(third_party_ / "plotly.failed");
  run = setup();
  EXPECT_EQ(run.code, 0);
  EXPECT_EQ(run.out + run.err, "");
  EXPECT_THAT(done(), StartsWith("pip plotly==6.9.0 --hash=sha256:"));
  for (const char* name : {"plotly.min.js", "licenses"})
    EXPECT_TRUE(fs::exists(third_party_ / "plotly" / name)) << name;
  expect_silence();
  test::write_file(third_party_ / "plotly/packages", "of another version\n");
  EXPECT_EQ(setup().code, 0);
  EXPECT_THAT(done(), StartsWith("pip plotly==6.9.0 "));
  expect_silence();
  fs::remove_all(third_party_);
  fs::remove(bin_ / "python3");
  expect_silence();  // pip is not installed just for this
  EXPECT_FALSE(fs::exists(third_party_ / "plotly"));
}

}  // namespace
}  // namespace muo
