# Loads %gpu in every kernel of this environment. Appending leaves the user's own list of extensions alone.
c = get_config()  # noqa: F821 - given by traitlets
c.InteractiveShellApp.extra_extensions.append("nls_jupyter")
