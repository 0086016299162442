# Installing Debian's packages, for scripts that source this.

can_apt_install() {
    command -v apt-get >/dev/null && as_root true 2>/dev/null
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

apt_install() {
    local install=(as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@")
    "${install[@]}" || { as_root apt-get update && "${install[@]}"; }
}
