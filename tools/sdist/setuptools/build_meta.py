"""What tools/setup has pip download a source distribution with, in the place of setuptools: pip
asks its build backend for the name and version, which the archive says already. So nothing is
fetched to build with, whose versions nobody has pinned, and no code of the archive is run."""

import email
import os
import shutil


def prepare_metadata_for_build_wheel(folder, settings=None):
    with open("PKG-INFO", encoding="utf-8") as file:
        info = email.message_from_file(file)
    name = f"{info['Name']}-{info['Version']}.dist-info"
    os.mkdir(f"{folder}/{name}")
    shutil.copy("PKG-INFO", f"{folder}/{name}/METADATA")
    return name
