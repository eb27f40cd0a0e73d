# Parts of the scripts that take packages from Debian's archive without installing them. To be sourced.

fail() {
  echo "$*" >&2
  exit 1
}

# The mirror that this system installs Debian from; apt tells what it knows once it has the mirror's lists.
debian_mirror() {
  [ -n "$(ls /var/lib/apt/lists 2>/dev/null | grep InRelease)" ] || apt-get -qq update >&2
  apt-get indextargets --format '$(REPO_URI) $(ORIGIN) $(LABEL)' 'Created-By: Packages' |
    awk '$2 == "Debian" && $3 == "Debian" { print $1; exit }'
}

# debian_apt FOLDER SUITE...: a configuration of apt's own for these suites in FOLDER, which leaves the system's
# untouched; the archive's key checks what comes. Exports APT_CONFIG. What is downloaded lands in FOLDER/archives.
debian_apt() {
  local apt="$1" mirror key=/usr/share/keyrings/debian-archive-keyring.gpg
  shift
  command -v apt-get >/dev/null && command -v dpkg >/dev/null || fail "there is no apt"
  [ -f "$key" ] || fail "no key of the Debian archive in $key"
  mirror="$(debian_mirror)"
  [ -n "$mirror" ] || fail "apt knows no Debian mirror"
  mkdir -p "$apt/lists/partial" "$apt/archives/partial"
  printf "deb [signed-by=$key] $mirror %s main\n" "$@" >"$apt/sources.list"
  : >"$apt/status"
  cat >"$apt/apt.conf" <<CONF
Dir::Etc::SourceList "$apt/sources.list";
Dir::Etc::SourceParts "-";
Dir::State::Lists "$apt/lists";
Dir::State::Status "$apt/status";
Dir::Cache "$apt";
APT::Sandbox::User "root";
Acquire::Languages "none";
CONF
  export APT_CONFIG="$apt/apt.conf"
}
