#!/bin/bash
# build.sh deb|rpm TREE OUT: makes the packages of an installed tree.
#
# TREE is what `make install install-python DESTDIR=TREE PREFIX=/usr` has put there, OUT the folder
# of the packages. Each NAME.package beside this script is one package: fields as in a Debian
# control file, then `Files:` with one path or pattern a line. Every file of TREE must be in exactly
# one package; debug files (/usr/lib/debug) are in none. Maintainer scripts follow from the files:
# users are created; units are registered, but neither enabled nor started; an upgrade restarts the
# services that run, except where the new release rejects their configuration: there the old program
# goes on; a removal stops them. Devices that are there get what the udev rules say. Purging a .deb
# deletes what `State:` names.
#
# Not cargo-deb and cargo-generate-rpm: both make the packages of one crate and name its files for
# each format in its Cargo.toml. Here all packages share one tree of programs, C libraries and
# Python; one list serves both formats, and a file in no package or in two is an error.
#
# Environment:
#   VERSION            that of the packages (default: that of the workspace)
#   LIBDIR, PYTHONDIR  as given to make install
#   DEBFULLNAME, DEBEMAIL  who maintains the packages
#   FAST=1             light compression, for tests
#   SOURCE_DATE_EPOCH  time of all files (default: that of the last commit)
set -euo pipefail
shopt -s nullglob

usage() { echo "usage: build.sh deb|rpm TREE OUT" >&2; exit 2; }
[ $# -eq 3 ] || usage
format=$1
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
tree=$(cd "$2" && pwd)
mkdir -p "$3"
out=$(cd "$3" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

workspace_version() {
  sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' "$top/Cargo.toml"
}
version=${VERSION:-$(workspace_version)}
# Both package managers sort 1.0~rc1 before 1.0.
version=${version/-/\~}
libdir=${LIBDIR:-/usr/lib}
pythondir=${PYTHONDIR:-/usr/lib/python3/dist-packages}
# Debian's own variables name who builds the packages.
maintainer="${DEBFULLNAME:-The ftb authors} <${DEBEMAIL:-ftb@example.org}>"
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$top" log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH

die() { echo "build.sh: $*" >&2; exit 1; }

# field NAME PACKAGE: the value of a field, with its variables.
field() {
  sed -n "/^Files:/q;s/^$1: //p" "$here/$2.package" | sed "s|\${version}|$version|g"
}
# long_description PACKAGE: its lines behind the first, as they stand.
long_description() {
  sed -n '/^Files:/q;/^Description:/,$p' "$here/$1.package" | tail -n +2
}
# patterns PACKAGE: what stands behind `Files:`.
patterns() {
  sed -n '/^Files:/,$p' "$here/$1.package" | tail -n +2 |
    sed "s|^ *||;s|\${libdir}|$libdir|;s|\${pythondir}|$pythondir|"
}

# select_files PACKAGE: writes the paths of its files into $work/PACKAGE.files.
select_files() {
  local pattern path
  patterns "$1" | while read -r pattern; do
    [ -e "$tree$pattern" ] || [[ $pattern == *[*?]* ]] || die "$1: no file $pattern"
    for path in "$tree"$pattern; do
      find "$path" -not -type d -printf '/%P\n' | sed "s|^/\$||;s|^|${path#"$tree"}|"
    done
  done | sort -u >"$work/$1.files"
  [ -s "$work/$1.files" ] || die "$1 has no files in $tree"
}

packages=()
for file in "$here"/*.package; do packages+=("$(basename "$file" .package)"); done

# check_files: every file of the tree is in exactly one package.
check_files() {
  local wrong
  find "$tree" -not -type d -not -path "$tree/usr/lib/debug/*" -printf '/%P\n' | sort >"$work/all"
  wrong=$(cat "$work"/*.files | sort | uniq -d)
  [ -z "$wrong" ] || die "in more than one package: $wrong"
  wrong=$(cat "$work"/*.files | sort | comm -3 - "$work/all")
  [ -z "$wrong" ] || die "in no package: $wrong"
}

# prepare: man pages are packed, times are those of the release.
prepare() {
  cp -a "$tree" "$work/tree"
  tree=$work/tree
  find "$tree/usr/share/man" -name '*.[1-8]' -exec gzip -9n {} + 2>/dev/null || true
  find "$tree" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
}

# names PACKAGE FOLDER: the names of its files in that folder.
names() { sed -n "s|^$2/||p" "$work/$1.files" | tr '\n' ' ' | sed 's/ $//'; }

# try_restart_function COMMAND: the shell function try_restart, by which an upgrade restarts a unit.
# COMMAND restarts it. The program is asked with the arguments of its unit. What is not restarted is
# in the journal of the unit too, and ftbctl doctor finds it.
try_restart_function() {
  cat <<'FUNCTION' | sed "s|@RESTART@|$1|"
    # try_restart UNIT: not into a configuration that this release rejects (exit code 64).
    try_restart() {
        check=$(systemctl show -p ExecStart --value "$1" |
            sed -n 's/.*argv\[\]=\(\/usr\/bin\/ftb-[^;]*\) ;.*/\1/p' |
            sed 's/ run\( \|$\)/ check\1/;t;s/$/ --check-config/')
        # Where a drop-in sets variables, the check may lack what the program has.
        others=$(systemctl show -p Environment -p EnvironmentFiles --value "$1" |
            sed 's/^FTB_BOOT_ID=[^ ]*$//' | tr -d ' \n')
        rejected=0
        case "$check" in *'$'*) check= ;; esac
        if systemctl is-active --quiet "$1" && [ -n "$check" ] && [ -z "$others" ]; then
            said=$(timeout 60 $check 2>&1) || rejected=$?
        fi
        if [ "$rejected" = 64 ]; then
            echo "$1 is not restarted, so the old program goes on: this release rejects its" >&2
            echo "configuration. Correct it, then run: systemctl restart $1" >&2
            echo "$said" >&2
            {
                echo "MESSAGE=$1 is not restarted: this release rejects its configuration: $said" |
                    tr '\n' ' '
                printf '\nPRIORITY=3\nSYSLOG_IDENTIFIER=%s\n' "${1%.service}"
                printf 'OBJECT_SYSTEMD_UNIT=%s\n' "$1"
            } | logger --journald || true
        else
            @RESTART@ try-restart "$1" || true
        fi
    }
FUNCTION
}
# is_old_function: the shell function is_old, which says whether a unit runs another program than
# the installed one.
is_old_function() {
  cat <<'FUNCTION'
    is_old() {
        pid=$(systemctl show -p MainPID --value "$1")
        program=$(systemctl show -p ExecStart --value "$1" |
            sed -n 's/.*path=\(\/usr\/bin\/ftb-[^ ;]*\) ;.*/\1/p')
        [ "${pid:-0}" -gt 0 ] && [ ! "/proc/$pid/exe" -ef "${program:-/none}" ]
    }
FUNCTION
}
# reload_rules: the shell commands by which udev takes new rules, also for devices that are there.
reload_rules() {
  echo "    if [ -S /run/udev/control ]; then"
  echo "        udevadm control --reload || true"
  echo "        udevadm trigger --subsystem-match=ipmi --subsystem-match=infiniband_verbs || true"
  echo "    fi"
}

# ---------------------------------------------------------------------------------------------- deb

# maintainer_scripts PACKAGE FOLDER: postinst, prerm and postrm, if there is anything to do.
maintainer_scripts() {
  local units users rules state is_python
  units=$(names "$1" /usr/lib/systemd/system)
  users=$(names "$1" /usr/lib/sysusers.d)
  rules=$(names "$1" /usr/lib/udev/rules.d)
  state=$(field State "$1")
  is_python=$(grep -m1 "^$pythondir/" "$work/$1.files" || true)
  {
    [ -z "$users" ] || echo "    systemd-sysusers $users"
    # Before a service looks for its devices.
    [ -z "$rules" ] || reload_rules
    if [ -n "$units" ]; then
      try_restart_function deb-systemd-invoke
      echo "    for unit in $units; do"
      echo "        # What an administrator has enabled is disabled when the package is purged."
      echo "        deb-systemd-helper update-state \$unit >/dev/null || true"
      echo "    done"
      echo "    if [ -d /run/systemd/system ]; then"
      echo "        systemctl --system daemon-reload >/dev/null || true"
      echo "        if [ -n \"\$2\" ]; then for unit in $units; do try_restart \$unit; done; fi"
      echo "    fi"
    fi
    [ -z "$is_python" ] || echo "    if command -v py3compile >/dev/null; then py3compile -p $1; fi"
  } | script "$2/postinst" configure
  {
    [ -z "$units" ] || echo "    if [ -d /run/systemd/system ]; then deb-systemd-invoke stop $units || true; fi"
  } | script "$2/prerm" remove
  if [ -n "$is_python" ]; then
    printf '#!/bin/sh\nset -e\nif command -v py3clean >/dev/null; then py3clean -p %s; fi\n' "$1" >"$2/prerm"
    chmod 0755 "$2/prerm"
  fi
  {
    [ -z "$units" ] || echo "    for unit in $units; do deb-systemd-helper purge \$unit >/dev/null || true; done"
    [ -z "$state" ] || echo "    rm -rf $state"
    [ -z "$state" ] || echo "    rmdir --ignore-fail-on-non-empty /etc/ftb 2>/dev/null || true"
  } | script "$2/postrm" purge
  if [ -n "$units" ]; then
    printf '%s\n' 'if [ "$1" = remove ] && [ -d /run/systemd/system ]; then' \
      '    systemctl --system daemon-reload >/dev/null || true' fi >>"$2/postrm"
  fi
}

# script FILE ACTION: a script that does what standard input says in that action; none if nothing.
script() {
  local body
  body=$(cat)
  [ -n "$body" ] || return 0
  printf '#!/bin/sh\nset -e\nif [ "$1" = %s ]; then\n%s\nfi\n' "$2" "$body" >"$1"
  chmod 0755 "$1"
}

# shared_libraries ROOT: what dpkg-shlibdeps finds, such as "libc6 (>= 2.34)".
shared_libraries() {
  local file programs=()
  while read -r file; do
    if head -c 4 "$file" | grep -q ELF; then programs+=("$file"); fi
  done < <(find "$1/usr" -type f)
  [ ${#programs[@]} -gt 0 ] || return 0
  mkdir -p "$work/shlibs/debian"
  printf 'Source: ftb\nPackage: ftb\n' >"$work/shlibs/debian/control"
  (cd "$work/shlibs" && dpkg-shlibdeps -O "${programs[@]}" 2>/dev/null) | sed 's/^shlibs:Depends=//'
}

control() { # PACKAGE ROOT
  local name value libraries
  libraries=$(shared_libraries "$2")
  echo "Package: $1"
  echo "Source: ftb"
  echo "Version: $version"
  echo "Architecture: $(architecture "$1")"
  echo "Maintainer: $maintainer"
  echo "Installed-Size: $(du -k -s --apparent-size "$2" | cut -f1)"
  for name in Section Depends Recommends Suggests; do
    value=$(field $name "$1" | sed "s|\${shlibs:Depends}|$libraries|")
    [ -z "$value" ] || echo "$name: $value"
  done
  echo "Priority: optional"
  value=$(homepage)
  [ -z "$value" ] || echo "Homepage: $value"
  echo "Description: $(field Description "$1")"
  long_description "$1"
}
architecture() {
  local all
  all=$(field Architecture "$1")
  echo "${all:-$(dpkg --print-architecture)}"
}
homepage() { sed -n 's/^repository = "\(.*\)"/\1/p' "$top/Cargo.toml" | head -n1; }

build_deb() { # PACKAGE
  local root=$work/root/$1 doc name
  doc=$root/usr/share/doc/$1
  mkdir -p "$root/DEBIAN" "$doc"
  chmod -R u=rwX,go=rX "$root"
  (cd "$tree" && sed 's|^/||' "$work/$1.files" | tar -cf - -T -) | tar -xf - -C "$root"
  # Debian has no executable libraries.
  find "$root" -name '*.so*' -type f -exec chmod 0644 {} +
  cp "$here/copyright" "$doc/copyright"
  {
    printf 'ftb (%s) unstable; urgency=medium\n\n' "$version"
    printf '  * Release %s. CHANGELOG.md of ftb-doc says what is new.\n\n' "$version"
    printf ' -- %s  %s\n' "$maintainer" "$(LC_ALL=C date -u -R -d "@$SOURCE_DATE_EPOCH")"
  } | gzip -9n >"$doc/changelog.gz"
  if [ -e "$here/$1.overrides" ]; then
    install -D -m 0644 "$here/$1.overrides" "$root/usr/share/lintian/overrides/$1"
  fi
  maintainer_scripts "$1" "$root/DEBIAN"
  sed -n 's|^/etc/|&|p' "$work/$1.files" >"$root/DEBIAN/conffiles"
  [ -s "$root/DEBIAN/conffiles" ] || rm "$root/DEBIAN/conffiles"
  # A line for each library: its name and version, and the package that programs depend on.
  sed -n "s|^$libdir/\(lib.*\)\.so\.\([0-9]*\)\$|\1 \2 $1 (>= $version)|p" "$work/$1.files" \
    >"$root/DEBIAN/shlibs"
  if [ -s "$root/DEBIAN/shlibs" ]; then
    echo "activate-noawait ldconfig" >"$root/DEBIAN/triggers"
  else
    rm "$root/DEBIAN/shlibs"
  fi
  control "$1" "$root" >"$root/DEBIAN/control"
  (cd "$root" && find . -type f -not -path './DEBIAN/*' -printf '%P\0' | sort -z |
    xargs -0 md5sum) >"$root/DEBIAN/md5sums"
  find "$root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
  name=${1}_${version}_$(architecture "$1").deb
  dpkg-deb --root-owner-group ${FAST:+-Zgzip -z1} --build "$root" "$out/$name" >/dev/null
  echo "$out/$name"
}

# ---------------------------------------------------------------------------------------------- rpm

rpm_scripts() { # PACKAGE
  local units users rules
  units=$(names "$1" /usr/lib/systemd/system)
  users=$(names "$1" /usr/lib/sysusers.d)
  rules=$(names "$1" /usr/lib/udev/rules.d)
  if grep -q "^$libdir/lib.*\.so\.[0-9]" "$work/$1.files"; then
    printf '%%post -n %s -p /sbin/ldconfig\n%%postun -n %s -p /sbin/ldconfig\n' "$1" "$1"
  fi
  [ -n "$units$users$rules" ] || return 0
  echo "%post -n $1"
  [ -z "$users" ] || echo "systemd-sysusers $users >/dev/null || :"
  [ -z "$units" ] || echo "systemctl daemon-reload >/dev/null 2>&1 || :"
  [ -z "$rules" ] || reload_rules
  [ -n "$units" ] || return 0
  echo "%preun -n $1"
  echo "if [ \$1 -eq 0 ]; then systemctl --no-reload disable --now $units >/dev/null 2>&1 || :; fi"
  echo "%postun -n $1"
  echo "systemctl daemon-reload >/dev/null 2>&1 || :"
  # Not %postun: that of the release that goes would restart the one that comes.
  echo "%posttrans -n $1"
  is_old_function
  try_restart_function systemctl
  echo "if [ -d /run/systemd/system ]; then"
  echo "    systemctl daemon-reload >/dev/null 2>&1 || :"
  echo "    for unit in $units; do if is_old \$unit; then try_restart \$unit; fi; done"
  echo "fi"
}

# own_folders PACKAGE: folders that no other software has: rpm removes only what a package owns.
own_folders() {
  awk -F/ '{
    path = ""; ours = 0
    for (i = 2; i < NF; i++) {
      path = path "/" $i
      if ($i == "ftb" || $i ~ /^ftb-.*dist-info$/) ours = 1
      if (ours) print "%dir " path
    }
  }' "$work/$1.files" | sort -u
}

spec() {
  local package architecture
  cat <<HEAD
%global debug_package %{nil}
%global __os_install_post %{nil}
%global _build_id_links none
%global _unpackaged_files_terminate_build 0
Name: ftb
Version: $version
Release: 1
Summary: Fault event backplane for clusters
License: Apache-2.0
$(homepage | sed 's/^/URL: /')
%description
Fault event backplane for clusters.
%install
cp -a $tree/. %{buildroot}
HEAD
  for package in "${packages[@]}"; do
    architecture=$(field Architecture "$package")
    echo "%package -n $package"
    echo "Summary: $(field Description "$package")"
    [ "$architecture" != all ] || echo "BuildArch: noarch"
    field Rpm-Requires "$package" | sed '/./s/^/Requires: /'
    echo "%description -n $package"
    long_description "$package" | sed 's/^ //;s/^\.$//'
    echo "%files -n $package"
    own_folders "$package"
    sed 's|^/etc/|%config(noreplace) &|' "$work/$package.files"
    rpm_scripts "$package"
  done
}

build_rpms() {
  spec >"$work/ftb.spec"
  local payload=w19.zstdio
  [ -z "${FAST:-}" ] || payload=w1.gzdio
  mkdir -p "$work/rpm"
  rpmbuild --quiet -bb --define "_topdir $work/rpm" --define "_rpmdir $out" \
    --define "_binary_payload $payload" \
    --define '_rpmfilename %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm' \
    --define 'use_source_date_epoch_as_buildtime 1' --define 'clamp_mtime_to_source_date_epoch 1' \
    --define '_buildhost localhost' \
    "$work/ftb.spec" >"$work/rpmbuild.log" 2>&1 || { cat "$work/rpmbuild.log" >&2; exit 1; }
  ls "$out"/*.rpm
}

prepare
case $format in
deb)
  # It is among Debian's common licences.
  rm -f "$tree/usr/share/doc/ftb/LICENSE"
  for package in "${packages[@]}"; do select_files "$package"; done
  check_files
  for package in "${packages[@]}"; do build_deb "$package"; done
  ;;
rpm)
  for package in "${packages[@]}"; do select_files "$package"; done
  check_files
  build_rpms
  ;;
*) usage ;;
esac
