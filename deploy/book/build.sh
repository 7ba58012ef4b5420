#!/bin/sh
# build.sh OUT: the source folder of the book, for mdBook, in OUT (which is made anew).
#
# The pages that SUMMARY.md names keep their places below OUT/src, so links between them hold. A
# link to a file that is no page of the book becomes its words.
set -eu
[ $# -eq 1 ] || { echo "usage: build.sh OUT" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
out=$1
rm -rf "$out"
mkdir -p "$out/src"
cp "$here/book.toml" "$out/book.toml"
sed -e 's|](\.\./\.\./|](|' -e 's|](\([a-z]*\.md\))|](deploy/book/\1)|' \
  "$here/SUMMARY.md" >"$out/src/SUMMARY.md"
pages=$(sed -n 's|.*](\(.*\.md\)).*|\1|p' "$out/src/SUMMARY.md")
for page in $pages; do
  mkdir -p "$out/src/$(dirname "$page")"
  cp "$top/$page" "$out/src/$page"
done

# What a page links to, as paths of the repository; then those that are no page lose their link.
for page in $pages; do
  folder=$(dirname "$page")
  targets=$(grep -o '](\([^)]*\))' "$out/src/$page" | sed 's|^](||; s|)$||' | sort -u || true)
  for target in $targets; do
    file=${target%%#*}
    case $target in
    *://* | '#'*) continue ;;
    esac
    path=$(realpath -m --relative-to="$top" "$top/$folder/$file")
    printf '%s\n' "$pages" | grep -qx "$path" && continue
    quoted=$(printf '%s' "$target" | sed 's|[.[\*^$]|\\&|g')
    sed -i "s|\[\([^]]*\)\]($quoted)|\1|g" "$out/src/$page"
  done
done
