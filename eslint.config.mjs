export default [
  {
    files: ["src/**/*.js", "book/_static/**/*.js", "book/_extra/**/*.js"],
    rules: {
      "array-callback-return": "error",
      "eqeqeq": "error",
      "no-constant-condition": "error",
      "no-dupe-keys": "error",
      "no-fallthrough": "error",
      "no-self-assign": "error",
      "no-shadow-restricted-names": "error",
      "no-unreachable": "error",
      "no-unused-vars": "error",
      "no-use-before-define": ["error", { functions: false, variables: false, classes: false }],
      "no-var": "error",
      "prefer-const": "error",
    },
  },
];
