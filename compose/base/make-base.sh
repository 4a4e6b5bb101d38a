#!/bin/sh
# Makes the base image's file system where no image registry can be reached:
#   make-base.sh TAR SUITE     (as root, on Debian or Ubuntu; `docker import TAR` makes the image)
# Needs mmdebstrap and installs it. The mirrors are mmdebstrap's defaults for the suite, security updates included.
set -eu
tar=$1
suite=$2
export DEBIAN_FRONTEND=noninteractive

command -v mmdebstrap >/dev/null && [ -e /usr/share/keyrings/debian-archive-keyring.gpg ] || {
    apt-get install -qy --no-install-recommends mmdebstrap debian-archive-keyring ||
        { apt-get update -q && apt-get install -qy --no-install-recommends mmdebstrap debian-archive-keyring; }
}

# As in Debian's own slim image: no manuals, no translations.
exec mmdebstrap --mode=root --variant=apt --format=tar --include=ca-certificates \
    --aptopt='Acquire::Languages "none"' \
    --dpkgopt=force-unsafe-io \
    --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-include=/usr/share/doc/*/copyright' \
    --dpkgopt='path-exclude=/usr/share/locale/*' \
    "$suite" "$tar"
