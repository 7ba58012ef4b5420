#!/bin/sh
# sbom.sh: prints a bill of materials (CycloneDX 1.5, JSON) of what the packages contain: the crates
# that are linked into programs and libraries for this kind of machine, as Cargo.lock pins them.
# Without times and random ids: the same sources give the same text.
set -eu
cd "$(dirname "$0")/../.."
host=$(rustc -vV | sed -n 's/^host: //p')
cargo metadata --format-version 1 --locked --filter-platform "$host" | jq --sort-keys '
  # Crates that exist for tests and benchmarks are in no package.
  def is_packaged: .name | IN("ftb-tests", "ftb-bench", "ftb-fuzz") | not;
  . as $all
  | ($all.resolve.nodes | map({key: .id, value: .}) | from_entries) as $nodes
  | ($all.packages | map({key: .id, value: .}) | from_entries) as $packages
  | def linked: [.deps[] | select(any(.dep_kinds[]; .kind == null)) | .pkg];
    def closure($todo; $done):
      if ($todo | length) == 0 then $done
      else ($done + ($todo | map({key: ., value: true}) | from_entries)) as $next
        | closure([$todo[] | $nodes[.] | linked[]] | unique | map(select($next[.] | not)); $next)
      end;
    [$all.workspace_members[] | select($packages[.] | is_packaged)] as $own
  | closure($own; {}) | keys | map($packages[.]) | sort_by([.name, .version])
  | map(
      (if .source == null then "pkg:generic/\(.name)@\(.version)"
       else "pkg:cargo/\(.name)@\(.version)" end) as $purl
      | {type: "library", "bom-ref": $purl, purl: $purl, name, version}
        + (if .license then {licenses: [{expression: (.license | gsub("/"; " OR "))}]} else {} end)
    ) as $components
  | {bomFormat: "CycloneDX", specVersion: "1.5", version: 1,
     metadata: {component: {type: "application", name: "ftb",
       version: ($packages[$own[0]].version)}},
     components: $components}'
